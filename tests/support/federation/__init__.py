"""Lives of a federation under faults, for tests."""
