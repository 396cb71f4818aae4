"""From counts per node to members with ranks, GPUs and NICs."""
