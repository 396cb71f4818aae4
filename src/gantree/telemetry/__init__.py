"""What machines report of themselves: live probes through NVML and sysfs."""
