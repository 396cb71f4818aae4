"""Gangs on slices of a torus."""
