"""Explanations: why a job is pending and when it starts, in numbers and words."""
