"""Runs the operation lists by which Kubernetes measures its own scheduler, with any scheduler, on a real API server."""
