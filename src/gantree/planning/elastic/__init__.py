"""Which elastic gangs to shrink and to grow."""
