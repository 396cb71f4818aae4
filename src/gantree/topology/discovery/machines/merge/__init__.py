"""Merges several readings of one machine: each adds what the others lack."""
