"""What traffic across a placement costs, in seconds. This is the door; the rooms behind it are named below.

The model is NCCL's own, made explicit. A collective over a set of GPUs is a ring, a tree, or a sum inside the switches;
which of them, in which protocol, is decided by what is fastest, as NCCL decides it. Three things set a price:

1. *The tightest hop.* Inside an island (a node, or an NVLink domain above nodes) the GPUs' own links carry the ring
   (`inside`). Out of it go the NICs near the GPUs that take part, all of them side by side, because each channel of
   a ring leaves a node once, by a NIC of its own (`egress`). So the bus bandwidth of a DGX with eight 50 GB/s NICs is
   not 50 but near 400 GB/s, or what NVLink carries, whichever is less. Above that, each tier may have a figure per
   GPU and each domain a capacity of its up-links, which the hops of the ring that leave it share (`paths`).
2. *Steps.* A ring over n ranks makes up to 2(n-1), a tree about twice log2 of the nodes. They decide small messages.
3. *What is left.* Links that are worn (health) or busy (load) count with health x (1 - load) (`terrain`).

The order of ranks matters as far as NCCL lets it: it gathers the ranks of a node, then joins nodes in the order of
their first ranks. A ring in topology order leaves a leaf once; shuffled, it leaves it as often as neighbours differ.

    constants    every figure, and where it is from          inside    rings among the GPUs of a machine
    egress       the NICs that GPUs use                      terrain   a fabric's figures by node and domain
    paths        which hops a ring over ranks makes          pairs     all-to-all and send/recv
    collectives  time from hops, size and algorithm          traffic   what a job sends, by group of its parallelism
    step         a training step: groups, overlap, bubble
    pricing      asking for prices, and keeping them

What is kept: prices by *signature*, that is which GPUs on nodes of which kind, in which domains relative to each other,
with what left of their links. Two placements that look alike to traffic are one price, so a repeated question costs
microseconds. `price_many` asks for a thousand different placements at once.

How good it is: `docs/cost.md`, which `benchmarks/calibration.py` prints: every published measurement beside the price.
Times compare places well; as promises they are only as good as that table. What a site measures itself (`gantree topo
measure`) takes the place of the constants.
"""

from collections.abc import Sequence

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Predicted
from gantree.topology.fabric import Fabric, IntArray
from gantree.topology.pricing import Price, Pricer, Prices, Ranks, pricer_of, ranks_of
from gantree.topology.step import FlowCost, Step, step_time

__all__ = [
    "GIB",
    "FlowCost",
    "Price",
    "Pricer",
    "Prices",
    "Ranks",
    "Step",
    "predict",
    "pricer_of",
    "ranks_of",
    "step_time",
]

GIB = 1 << 30


def predict(
    fabric: Fabric, members: Sequence[MemberPlacement], job: Job | None = None
) -> Predicted:
    """Price a gang's place: members in rank order, at least one.

    step_s is there where the job tells its model or its traffic, and its parallelism fits this number of GPUs (one
    that grew or shrank may not).
    """
    nodes = np.array([fabric.index_of_node[member.node] for member in members], dtype=np.int64)
    crossings = tuple(
        (fabric.tiers[tier], _hops_that_leave(fabric.domain_of_node[tier][nodes]))
        for tier in range(1, fabric.node_tier + 1)
    )
    pricer, ranks = pricer_of(fabric), ranks_of(fabric, members)
    try:
        step = step_time(pricer, job, ranks) if job is not None else None
    except BadInput:
        step = None
    return Predicted(
        comm_s=pricer.price("all_reduce", GIB, ranks).seconds,
        crossings=crossings,
        step_s=step.step_s if step else None,
    )


def _hops_that_leave(domains: IntArray) -> int:
    """Hops of the closed ring over consecutive members whose two ends lie in different domains."""
    return int(np.count_nonzero(domains != np.roll(domains, 1)))
