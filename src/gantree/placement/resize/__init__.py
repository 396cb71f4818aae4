"""A placed gang made larger or smaller, with a member replaced, or tried with other sizes and requests."""
