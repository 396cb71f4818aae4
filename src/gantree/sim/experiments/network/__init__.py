"""Experiments on placement and the network: where members sit, and what that does to a step."""
