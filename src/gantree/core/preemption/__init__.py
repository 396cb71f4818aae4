"""Preemption: which running gangs shrink, move or stop for a pending one."""
