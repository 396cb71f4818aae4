"""Shared by all sources: PCI ids and paths, sets of CPUs, and NVIDIA's names."""
