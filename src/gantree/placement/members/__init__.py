"""Assigns ranks, GPUs and NICs to the members that a search counted per node."""
