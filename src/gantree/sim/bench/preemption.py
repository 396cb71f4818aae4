"""Benchmark of a preemption plan: one gang, and a single-GPU job of a lower class on every GPU of the cluster.

KAI's fill-and-reclaim test of this size takes 11 min 34 s end to end, with pods and an API server. This benchmark
measures the plan alone: the victims, and the placement that proves them sufficient.
"""

from functools import partial
from statistics import median
from typing import Any

from gantree.model.cluster import Allocation, Cluster, Node
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.placement.request.placement_preferences import DEFAULT_PREFERENCES
from gantree.planning.preemption.plan import Victim, plan_preemption
from gantree.sim.bench.mix import GPUS_OF_NODE, MACHINE
from gantree.sim.bench.timing import timed_us
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy

REPEATS = 5
SHARE_ASKED = 0.8
"""Share of the cluster that the large gang asks for: 4,000 GPUs of 5,000."""


def run(gpus: int) -> dict[str, Any]:
    """Measure plans for one large gang, for the same gang in one leaf, and for a gang of one node.

    Returns {"gpus", and for each of "anywhere", "one_leaf", "one_node": {"victims" (may be stopped), "stopped",
    "freed_gpus", "median_ms", "fastest_ms"}}. One leaf spans the whole cluster.
    """
    nodes = max(1, gpus // GPUS_OF_NODE)
    members = max(1, int(nodes * SHARE_ASKED))
    large = Role("worker", members, Shape(gpus=GPUS_OF_NODE))
    small = Role("worker", 1, Shape(gpus=GPUS_OF_NODE))
    return {
        "gpus": nodes * GPUS_OF_NODE,
        "anywhere": _figures(nodes, Job("large", (large,)), 1),
        "one_leaf": _figures(nodes, Job("large", (large,), topology=TopologySpec("leaf")), 1),
        "one_node": _figures(nodes, Job("small", (small,), topology=TopologySpec("nvlink")), 2),
    }


def _figures(nodes: int, job: Job, one_in: int) -> dict[str, Any]:
    """Measure one plan REPEATS times on a full cluster; jobs of one node in so many may be stopped."""
    occupancy = _full(nodes)
    owners = [owner for n, owner in enumerate(occupancy.owners) if n // GPUS_OF_NODE % one_in == 0]
    victims = [Victim(owner, 0, float(n * 37 % 1000), n) for n, owner in enumerate(owners)]
    ask = partial(plan_preemption, occupancy, job, victims, DEFAULT_PREFERENCES)
    timed = [timed_us(ask) for _ in range(REPEATS)]
    plan = timed[0][1]
    assert plan is not None, "all victims may be stopped, and the cluster is large enough"
    return {
        "victims": len(victims),
        "stopped": len(plan.victims),
        "freed_gpus": len(plan.victims),
        "median_ms": round(median(time_us for time_us, _ in timed) / 1000, 2),
        "fastest_ms": round(min(time_us for time_us, _ in timed) / 1000, 2),
    }


def _full(nodes: int) -> Occupancy:
    """Return a cluster of one leaf with a job on each GPU."""
    site = Cluster(
        name="full",
        tiers=("leaf", "node"),
        machines={MACHINE: machine(MACHINE)},
        nodes=tuple(Node(f"n{number}", MACHINE, ("l0",)) for number in range(nodes)),
        allocations=tuple(
            Allocation(job=f"j{node}-{gpu}", node=f"n{node}", gpus=(gpu,))
            for node in range(nodes)
            for gpu in range(GPUS_OF_NODE)
        ),
    )
    return Occupancy(Fabric.build(site))
