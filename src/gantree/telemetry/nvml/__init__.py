"""What NVML tells of this machine's GPUs."""
