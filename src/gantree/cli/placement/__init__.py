"""Commands that place jobs from files without a daemon: place, ranks, cost and fit."""
