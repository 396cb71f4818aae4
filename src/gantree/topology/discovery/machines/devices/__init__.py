"""What all sources name alike: PCI ids and paths, sets of CPUs, and the names that NVIDIA gives."""
