"""HTTP and typed objects of the API server."""
