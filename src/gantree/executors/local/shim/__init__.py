"""The shim, a process beside each member, with the standard library alone."""
