"""Searches the fewest domains that hold a gang, and the cheapest spread over them."""
