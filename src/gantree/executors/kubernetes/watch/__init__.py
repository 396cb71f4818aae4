"""Watches the cluster: discovery of APIs, and the API thread."""
