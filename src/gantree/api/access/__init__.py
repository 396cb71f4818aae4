"""Authentication, authorisation, rate limits and the audit log: tokens, sessions, OpenID Connect, permissions."""
