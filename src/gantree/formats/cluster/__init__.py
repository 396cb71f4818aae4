"""cluster.yaml and the machines in it."""
