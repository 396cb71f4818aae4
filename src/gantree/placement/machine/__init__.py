"""Inside one node: which GPUs, NICs, cores and MIG instances a member gets."""
