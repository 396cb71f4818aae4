"""What NVIDIA's DCGM exporter tells of GPUs."""
