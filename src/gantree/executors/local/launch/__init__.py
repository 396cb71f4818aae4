"""The launch of a member: environment, ranks, and visible GPUs."""
