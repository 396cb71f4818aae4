"""Partitioning of GPUs by MIG for the gangs that start on this machine."""
