"""A daemon that does not lead: what it answers, and which application answers a request."""
