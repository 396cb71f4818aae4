"""What lets gangs share GPUs of this machine: MPS control daemons, and the length of time slices."""
