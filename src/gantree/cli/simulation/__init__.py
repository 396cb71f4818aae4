"""Commands that measure the scheduler: simulate and bench."""
