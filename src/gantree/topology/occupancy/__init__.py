"""Occupancy: the resources that each owner holds. The only mutable part of the topology."""
