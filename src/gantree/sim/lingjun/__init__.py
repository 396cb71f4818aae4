"""Philly's jobs on sub-fabrics of Alibaba's Lingjun: a real trace on a real network, at a load that makes jobs wait.

subfabric  the first hosts of the published network
philly     the jobs of the trace, and what each of its queues is owed
figures    what came out, for the whole cluster and for each queue
alone      each queue on a private cluster of its cells, held against the shared run

Philly's running GPUs peak at about 1,240 and average 374, so the whole fabric would hold them without waiting.
"""
