"""access.yaml."""
