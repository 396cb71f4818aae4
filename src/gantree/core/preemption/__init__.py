"""Room that running gangs give up: for whom, and whose."""
