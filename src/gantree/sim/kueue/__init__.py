"""Kueue's own performance tests as work for gantree's scheduler: cohorts, quotas, borrowing, reclaim.

shapes     the three shapes, and what Kueue needed for them
work       a shape made into a cluster, a policy, jobs and a trace
bound      how soon work of a shape could be over and admitted at best
figures    what came out, beside Kueue's figures and the bounds

From test/performance/scheduler of kubernetes-sigs/kueue at ff69552e (Apache-2.0). Kueue's times are wall clock of a CI
machine, with API server and controllers; ours are simulated, and what the core takes is told beside them.
"""
