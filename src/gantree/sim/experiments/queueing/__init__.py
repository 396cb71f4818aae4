"""Experiments on queues and sharing: who runs when, and what others lose by it."""
