"""What one machine and its GPUs are: models, links, NUMA nodes, MIG profiles, prices."""
