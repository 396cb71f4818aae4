"""Who calls and what he may do: tokens, sessions, OpenID Connect, permissions, rate limits, the audit log."""
