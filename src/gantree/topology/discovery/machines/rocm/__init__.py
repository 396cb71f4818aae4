"""The prints of rocm-smi and amd-smi."""
