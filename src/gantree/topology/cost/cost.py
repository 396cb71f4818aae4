"""The cost of traffic of a placement, in seconds: the interface of this package.

The model is NCCL's own, made explicit. A collective over a set of GPUs is a ring, a tree, or a sum inside the switches;
which of them, in which protocol, is decided by what is fastest, as NCCL decides it. Three things set a price:

1. *The tightest hop.* Inside an island (a node, or an NVLink domain above nodes) the GPUs' own links carry the ring
   (`inside`). Out of it go the NICs near the GPUs that take part, all of them side by side, because each channel of
   a ring leaves a node once, by a NIC of its own (`egress`). So the bus bandwidth of a DGX with eight 50 GB/s NICs is
   not 50 but near 400 GB/s, or what NVLink carries, whichever is less. Above that, each tier may have a figure per
   GPU and each domain a capacity of its up-links, which the hops of the ring that leave it share (`paths`).
2. *Steps.* A ring over n ranks makes up to 2(n-1), a tree about twice log2 of the nodes. They decide small messages.
3. *What is left.* Links that are worn (health) or busy (load) count with health x (1 - load) (`traffic_index`).

The order of ranks matters as far as NCCL lets it: it gathers the ranks of a node, then joins nodes in the order of
their first ranks. A ring in topology order leaves a leaf once; shuffled, it leaves it as often as neighbours differ.

    constants    every figure, and where it is from          inside    rings among the GPUs of a machine
    egress       the NICs that GPUs use                      traffic_index   a fabric's figures by node and domain
    paths        which hops a ring over ranks makes          pairs     all-to-all and send/recv
    collectives  time from hops, size and algorithm          traffic   what a job sends, by group of its parallelism
    step         a training step: groups, overlap, bubble      serving_step   a request to a service
    flow_cost    one kind of traffic of a step
    pricing      asking for prices, and keeping them         signature  by what they are kept
    prediction   what a gang's place is said to cost         assumptions  what nobody told, what is broken

What is kept: prices by *signature*, that is which GPUs on nodes of which kind, in which domains relative to each other,
with what left of their links. Two placements that look alike to traffic are one price, so a repeated question costs
microseconds, that of a whole step too. `price_many` asks for a thousand different placements at once.

How good it is: `docs/cost.md`, which `benchmarks/calibration.py` prints: every published measurement beside the price.
Times compare places well; as promises they are only as good as that table. What a site measures itself (`gantree topo
measure`) takes the place of the constants.
"""

from gantree.topology.cost.assumptions import PriceBasis, price_basis
from gantree.topology.cost.flow_cost import FlowCost, Step
from gantree.topology.cost.prediction import GIB, predict
from gantree.topology.cost.pricing import Price, Pricer, Prices, Ranks, pricer_of, ranks_of
from gantree.topology.cost.step import step_time

__all__ = [
    "GIB",
    "FlowCost",
    "Price",
    "PriceBasis",
    "Pricer",
    "Prices",
    "Ranks",
    "Step",
    "predict",
    "price_basis",
    "pricer_of",
    "ranks_of",
    "step_time",
]
