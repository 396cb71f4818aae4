"""GPUs of the nodes: free, split into MIG instances or shares, and changes of their state."""
