"""The load of the decision benchmark: a half-full, fragmented cluster, and a mix of gangs.

The cluster has four tiers, pod > spine > leaf > node, as DGX H100 systems are built: 4 nodes in a rack, 32 in a
scalable unit. A quarter of its nodes is taken, half of them in part, a quarter is empty.

Half of the gangs have one member, 30 % of them 2 to 8, 20 % 9 to 64, of 1, 2, 4 or 8 GPUs. Of all gangs 30 % must stay
in one leaf, 40 % would like to, 10 % come in slices of two in a leaf. About 10 % are refused: most of the large ones
that must stay in one leaf, and TOO_LARGE of all that are made to be, with more members than a leaf has GPUs.
"""

from random import Random

from gantree.model.cluster import Allocation, Cluster, Node
from gantree.model.jobs import Job, Role, Shape, Slices, TopologySpec
from gantree.topology.hardware.catalog import machine

MACHINE = "dgx-h100"
GPUS_OF_NODE = 8
NODES_OF_LEAF, LEAVES_OF_SPINE, SPINES_OF_POD = 4, 8, 16
GPUS_OF_LEAF = GPUS_OF_NODE * NODES_OF_LEAF
TOO_LARGE = 0.05
"""Share of the gangs that are larger than any leaf and must stay in one."""


def empty_cluster(gpus: int) -> Cluster:
    """About so many GPUs, nothing taken."""
    return Cluster(
        name="bench",
        tiers=("pod", "spine", "leaf", "node"),
        machines={MACHINE: machine(MACHINE)},
        nodes=tuple(_node(number) for number in range(max(1, gpus // GPUS_OF_NODE))),
    )


def half_full(gpus: int, random: Random) -> Cluster:
    """About so many GPUs, half of them taken."""
    empty = empty_cluster(gpus)
    allocations = []
    for node in empty.nodes:
        lot = random.random()
        taken = (
            GPUS_OF_NODE if lot < 0.25 else random.randrange(1, GPUS_OF_NODE) if lot < 0.75 else 0
        )
        if taken:
            held = tuple(sorted(random.sample(range(GPUS_OF_NODE), taken)))
            allocations.append(Allocation(job=f"old-{node.name}", node=node.name, gpus=held))
    return Cluster(
        empty.name, empty.tiers, empty.machines, empty.nodes, allocations=tuple(allocations)
    )


def gang(name: str, random: Random) -> Job:
    """A gang of the mix."""
    size, wish = random.random(), random.random()
    members = 1 if size < 0.5 else random.randint(2, 8) if size < 0.8 else random.randint(9, 64)
    topology = TopologySpec()
    if wish < 0.3:
        topology = TopologySpec(required="leaf")
    elif wish < 0.7:
        topology = TopologySpec(preferred="leaf")
    elif wish < 0.8:
        members += members % 2
        topology = TopologySpec(slices=(Slices(2, "leaf"),))
    elif wish < 0.8 + TOO_LARGE:
        members = random.randint(GPUS_OF_LEAF + 1, 2 * GPUS_OF_LEAF)
        topology = TopologySpec(required="leaf")
    shape = Shape(gpus=random.choice((1, 2, 4, 8)))
    return Job(name, (Role("worker", members, shape),), topology=topology)


def _node(number: int) -> Node:
    leaf = number // NODES_OF_LEAF
    spine = leaf // LEAVES_OF_SPINE
    at = (f"p{spine // SPINES_OF_POD}", f"s{spine}", f"l{leaf}")
    return Node(f"n{number}", MACHINE, at)
