"""What one pod asks."""
