"""`gantree kubernetes`: commands for a Kubernetes cluster."""
