"""The page of the history: use, queue shares, waits and preemptions over hours to years."""
