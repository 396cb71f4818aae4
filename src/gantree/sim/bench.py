"""How long one gang decision takes: the search alone, and a whole call of `Scheduler.handle`.

The cluster has four tiers and is half full by allocations of its own, in whole nodes and in broken-up ones. The
gangs are a mix of what clusters see: half of them one member, 30 % of 2 to 8, 20 % of 9 to 64; members of 1, 2, 4
or 8 GPUs; 30 % must stay in one leaf, 40 % would like to, 10 % come in slices of two. The newest KEPT gangs that
fitted stay where they were put, so that each decision finds a cluster that has changed since the last.

The first tenth of the decisions warms up what is built once per shape of member, and is not counted.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from time import perf_counter_ns
from typing import Any

from gantree.core.scheduler import Scheduler
from gantree.model.cluster import Allocation, Cluster, Node
from gantree.model.events import CancelRequested, ClusterObserved, Event, GangEnded, JobSubmitted
from gantree.model.jobs import Job, Role, Shape, Slices, TopologyWish
from gantree.model.placements import Placement
from gantree.placement.search import place
from gantree.policy.preset import Policy
from gantree.sim.results import nearest_rank
from gantree.topology.catalog import machine
from gantree.topology.fabric import Fabric
from gantree.topology.occupancy import Occupancy

MACHINE = "dgx-h100"
GPUS_OF_NODE = 8
NODES_OF_LEAF, LEAVES_OF_SPINE, SPINES_OF_POD = 4, 8, 16
"""As DGX H100 systems are built: 4 in a rack, 32 in a scalable unit."""

KEPT = 32
"""Gangs that hold a place at any time, beside the site's own allocations."""


def decisions(gpus: int, decisions: int, seed: int) -> dict[str, Any]:
    """Measure `decisions` gangs on about `gpus` GPUs; the same gangs for the same seed.

    Gives {"gpus", "decisions", "refused" (share of the gangs), "median_us", "p99_us" (the search),
    "handle_median_us", "handle_p99_us" (the scheduler, one submission a call)}.
    """
    random = Random(seed)  # noqa: S311 - a repeatable load, no secret
    site = half_full(gpus, random)
    warm_up = max(1, decisions // 10)
    jobs = [gang(f"g{number}", random) for number in range(warm_up + decisions)]
    searches_us, refused = _search_times_us(site, jobs)
    handles_us = _handle_times_us(site, jobs)
    return {
        "gpus": len(site.nodes) * GPUS_OF_NODE,
        "decisions": decisions,
        "refused": round(sum(refused[warm_up:]) / decisions, 4),
        **_figures("", searches_us[warm_up:]),
        **_figures("handle_", handles_us[warm_up:]),
    }


def _figures(prefix: str, times_us: list[float]) -> dict[str, float | None]:
    ordered = sorted(times_us)
    return {
        f"{prefix}median_us": nearest_rank(ordered, 50),
        f"{prefix}p99_us": nearest_rank(ordered, 99),
    }


def half_full(gpus: int, random: Random) -> Cluster:
    """A cluster of pod > spine > leaf > node: a quarter of the nodes taken, half taken in part, a quarter empty."""
    nodes = tuple(_node(number) for number in range(max(1, gpus // GPUS_OF_NODE)))
    allocations = []
    for node in nodes:
        lot = random.random()
        taken = (
            GPUS_OF_NODE if lot < 0.25 else random.randrange(1, GPUS_OF_NODE) if lot < 0.75 else 0
        )
        if taken:
            held = tuple(sorted(random.sample(range(GPUS_OF_NODE), taken)))
            allocations.append(Allocation(job=f"old-{node.name}", node=node.name, gpus=held))
    return Cluster(
        name="bench",
        tiers=("pod", "spine", "leaf", "node"),
        machines={MACHINE: machine(MACHINE)},
        nodes=nodes,
        allocations=tuple(allocations),
    )


def _node(number: int) -> Node:
    leaf = number // NODES_OF_LEAF
    spine = leaf // LEAVES_OF_SPINE
    at = (f"p{spine // SPINES_OF_POD}", f"s{spine}", f"l{leaf}")
    return Node(f"n{number}", MACHINE, at)


def gang(name: str, random: Random) -> Job:
    """A gang of the mix."""
    size, wish = random.random(), random.random()
    members = 1 if size < 0.5 else random.randint(2, 8) if size < 0.8 else random.randint(9, 64)
    topology = TopologyWish()
    if wish < 0.3:
        topology = TopologyWish(required="leaf")
    elif wish < 0.7:
        topology = TopologyWish(preferred="leaf")
    elif wish < 0.8:
        members += members % 2
        topology = TopologyWish(slices=(Slices(2, "leaf"),))
    shape = Shape(gpus=random.choice((1, 2, 4, 8)))
    return Job(name, (Role("worker", members, shape),), topology=topology)


def _search_times_us(site: Cluster, jobs: list[Job]) -> tuple[list[float], list[bool]]:
    """Microseconds of `place` a gang, and whether it was refused."""
    occupancy = Occupancy(Fabric.build(site))
    kept: deque[str] = deque()
    times_us, refused = [], []
    for job in jobs:
        time_us, verdict = _timed_us(partial(place, occupancy, job))
        times_us.append(time_us)
        refused.append(not isinstance(verdict, Placement))
        if isinstance(verdict, Placement):
            occupancy.take(job.name, verdict.members)
            kept.append(job.name)
        if len(kept) > KEPT:
            occupancy.give_back(kept.popleft())
    return times_us, refused


def _handle_times_us(site: Cluster, jobs: list[Job]) -> list[float]:
    """Microseconds of `Scheduler.handle` a submission. A gang that was refused is cancelled before the next one."""
    scheduler = Scheduler(Policy())
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=site)])
    kept: deque[str] = deque()
    times_us = []
    for number, job in enumerate(jobs):
        now = float(number)
        submitted = JobSubmitted(id=job.name, observed_at=now, job=job.name, spec=job)
        time_us, _ = _timed_us(partial(scheduler.handle, (submitted,)))
        times_us.append(time_us)
        if job.name in scheduler.ledger.holding:
            kept.append(job.name)
        else:
            scheduler.handle([CancelRequested(id=f"-{job.name}", observed_at=now, job=job.name)])
        if len(kept) > KEPT:
            scheduler.handle([_ended(kept.popleft(), now)])
    return times_us


def _ended(job: str, now: float) -> Event:
    return GangEnded(id=f"{job}/ended", observed_at=now, job=job, attempt=1, exit_code=0)


def _timed_us(act: Callable[[], Any]) -> tuple[float, Any]:
    start_ns = perf_counter_ns()
    outcome = act()
    return (perf_counter_ns() - start_ns) / 1000, outcome
