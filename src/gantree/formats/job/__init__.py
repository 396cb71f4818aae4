"""job.yaml."""
