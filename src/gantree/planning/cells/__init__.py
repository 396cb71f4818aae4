"""Binding of a queue's cells to domains, and the guests that must leave them."""
