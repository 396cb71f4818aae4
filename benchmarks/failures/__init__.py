"""Failures forced on gantree on a real Kubernetes control plane, and what must hold by what its API server tells."""
