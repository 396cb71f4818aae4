"""Plans when and where a pending gang can start."""
