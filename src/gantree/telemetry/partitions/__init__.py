"""Partitioning of GPUs by MIG: over NVML, and simulated. The interface is `model.gpu_partitions`."""
