"""Experiments on cost."""
