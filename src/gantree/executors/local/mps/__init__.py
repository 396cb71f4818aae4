"""CUDA MPS on this machine: the control daemons through which gangs share GPUs."""
