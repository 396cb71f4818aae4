"""Explains refusals: why a gang has no place, and which changes would help."""
