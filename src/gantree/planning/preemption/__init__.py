"""Plans which gangs are stopped for another one."""
