"""Dynamic resource allocation: devices, claims and allocations."""
