"""Checks of links before a start: prices to compare with, and what follows for nodes."""
