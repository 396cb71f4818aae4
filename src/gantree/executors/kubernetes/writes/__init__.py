"""Writes to the API server."""
