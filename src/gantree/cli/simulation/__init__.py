"""Commands that measure the scheduler: simulate, replay and bench."""
