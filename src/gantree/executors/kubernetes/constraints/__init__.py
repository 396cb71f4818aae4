"""Where pods may be beside other pods, in which domains, with which volumes and channels."""
