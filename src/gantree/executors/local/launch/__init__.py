"""What a member is started with: its environment, its ranks, and the GPUs that it sees."""
