"""`gantree top`: a live view of the cluster, the queues and the jobs in a terminal."""
