"""Plans the growth and shrinking of elastic gangs."""
