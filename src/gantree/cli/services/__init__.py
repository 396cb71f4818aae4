"""Commands about services: list, show, scale."""
