"""Traffic of a job's ranks, and the links that it crosses."""
