"""A gang that stands made larger or smaller, moved in part, or tried otherwise."""
