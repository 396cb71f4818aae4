"""Which gangs to stop for another one."""
