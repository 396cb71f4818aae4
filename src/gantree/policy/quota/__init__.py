"""Quota of queues: guarantees, borrowing, limits."""
