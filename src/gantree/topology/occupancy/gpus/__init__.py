"""GPUs of the nodes: which are free, which are split into MIG instances or shares, and how a state changes."""
