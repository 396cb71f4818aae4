"""Services: what is requested of them, what becomes of their replicas, and which replicas there are."""
