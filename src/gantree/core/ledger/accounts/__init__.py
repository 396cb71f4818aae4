"""What queues and users hold and have used: quota, guarantees, lending, shares, budgets."""
