"""The jobs of a federation: what is kept of each, and which cluster gets it."""
