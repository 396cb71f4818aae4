"""What is done about it: gangs, their attempts, nodes, claims and GangJobs."""
