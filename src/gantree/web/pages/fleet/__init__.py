"""The page of the fleet: what its GPUs were good for."""
