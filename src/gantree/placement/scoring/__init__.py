"""Scores of nodes and domains: fragmentation, packing, and preferred affinity."""
