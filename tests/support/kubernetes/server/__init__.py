"""The HTTP of the API server, and what its verbs do to objects."""
