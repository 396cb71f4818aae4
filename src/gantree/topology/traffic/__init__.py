"""What a job's ranks send each other, and which links that crosses."""
