"""Assigns GPUs, NICs, cores and MIG instances of one node to members."""
