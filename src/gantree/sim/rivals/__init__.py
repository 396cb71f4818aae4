"""Published placement algorithms as plain code, for benchmarks; the scheduler imports none of them.

Rules for whole nodes below switches, of a gang that comes in units (pipelines), as Arnold compares them:

units            what they have in common: units of nodes, and the domains that have free ones
best_fit         each unit in the fullest domain that holds it
random_fit       each unit in any domain that holds it; members on any nodes
gpu_packing      node by node in the fullest domains, units cut where one ends
bisection        Amaral's dual recursive bipartition with Fiduccia-Mattheyses

And for members below any tree of domains:

level_counting   Kueue's topology-aware scheduling: fewest domains level by level, by counts
"""
