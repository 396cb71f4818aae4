"""Telemetry of machines: live probes through NVML and sysfs, and exporters."""
