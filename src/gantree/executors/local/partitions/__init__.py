"""Preparation of GPUs for the gangs that start on this machine: partitioning by MIG, and the thread that does it."""
