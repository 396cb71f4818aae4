"""Output of rocm-smi and amd-smi."""
