"""Machines and their GPUs: models, links, NUMA nodes, MIG profiles, prices."""
