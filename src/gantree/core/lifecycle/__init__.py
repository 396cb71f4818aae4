"""The effect of events on a job, from its launch until it is forgotten."""
