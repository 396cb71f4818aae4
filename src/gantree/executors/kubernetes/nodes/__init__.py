"""Makes the fabric of Node objects. Pure."""
