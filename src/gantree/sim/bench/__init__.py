"""Benchmarks of decisions on repeatable loads: what `gantree bench` prints.

mix         the half-full cluster, and the gangs that come
timing      microseconds of one call; figures of many
decisions   one gang decision: the search alone, and a whole call of `Scheduler.handle`
siblings    one large gang; many single GPUs; a refusal with its reasons
tas         Kueue's test of topology-aware scheduling, its gangs and cluster
memory      what a cluster and ten shapes take
"""
