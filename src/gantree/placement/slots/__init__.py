"""How many members of a shape each node and each domain can still take."""
