"""policy.yaml."""
