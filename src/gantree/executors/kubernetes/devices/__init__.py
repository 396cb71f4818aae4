"""Dynamic resource allocation: devices, claims and who has what."""
