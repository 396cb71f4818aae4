"""Parts of GPUs on the nodes of a daemon: partitions, MPS, time slices."""
