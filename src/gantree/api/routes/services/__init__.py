"""Routes of services: for their users, and for routers that send requests to their replicas."""
