"""What needs both to know who goes next and where things go: so far preemption."""
