"""Commands that explain the schedule: why, when, what-if and defragment."""
