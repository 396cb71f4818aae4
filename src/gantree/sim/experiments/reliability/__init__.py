"""Experiments on failures, interruptions and checkpoints."""
