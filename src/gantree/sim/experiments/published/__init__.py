"""Published tables of other schedulers on their own workloads, beside gantree on the same work."""
