"""Controllers of gangs, attempts, nodes, claims and GangJobs."""
