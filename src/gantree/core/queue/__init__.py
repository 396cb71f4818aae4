"""Pending jobs: which are eligible and may fit, their variants, and the rules of preemption."""
