"""Changes placed gangs: grow, shrink, replace a member; and trials with other sizes and requests."""
