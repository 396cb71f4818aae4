"""`gantree history`: what happened over time."""
