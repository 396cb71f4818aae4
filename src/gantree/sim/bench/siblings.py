"""Benchmarks of single kinds of decisions: a large gang, many single GPUs, an explained refusal."""

from collections.abc import Callable
from functools import partial
from random import Random
from time import perf_counter_ns
from typing import Any

from gantree.core.scheduler import Scheduler
from gantree.model.events import ClusterObserved, JobSubmitted
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.policy.rules import Policy
from gantree.sim.bench.decisions import handle_times_us, place_and_take, search_times_us
from gantree.sim.bench.mix import GPUS_OF_LEAF, GPUS_OF_NODE, empty_cluster, half_full
from gantree.sim.bench.timing import figures, timed_us
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

WARM_UP = 3
"""Decisions before those that count: indexes are built at the first one of a shape."""

REFUSED_MEMBERS = 10


def large_gang(
    gpus: int, members: int, gpus_each: int, tier: str, decisions: int, seed: int
) -> dict[str, Any]:
    """One gang of many members that must stay in one domain of a tier, on a half-full cluster; one at a time.

    Gives {"gpus", "members", "decisions", "placed" (gangs), and the figures of `decisions`}.
    """
    site = half_full(gpus, Random(seed))  # noqa: S311 - a repeatable load, no secret
    shape, topology = Shape(gpus=gpus_each), TopologySpec(required=tier)
    jobs = [
        Job(f"g{number}", (Role("worker", members, shape),), topology=topology)
        for number in range(WARM_UP + decisions)
    ]
    searches_us, refused = search_times_us(site, jobs, kept=0)
    handles_us = handle_times_us(site, jobs, kept=0)
    return {
        "gpus": len(site.nodes) * GPUS_OF_NODE,
        "members": members,
        "decisions": decisions,
        "placed": decisions - sum(refused[WARM_UP:]),
        **figures(searches_us[WARM_UP:]),
        **figures(handles_us[WARM_UP:], "handle_"),
    }


def fill(gpus: int) -> dict[str, Any]:
    """As many jobs of one GPU as an empty cluster has GPUs, one after the other.

    Gives {"gpus", "jobs", "placed", "seconds" (all searches), "handle_seconds" (all submissions to the scheduler),
    and the figures of each}.
    """
    site = empty_cluster(gpus)
    count = len(site.nodes) * GPUS_OF_NODE
    jobs = [Job(f"g{n}", (Role("worker", 1, Shape(gpus=1)),)) for n in range(count)]
    occupancy = Occupancy(Fabric.build(site))
    seconds, searches_us = _all(jobs, partial(place_and_take, occupancy))
    scheduler = Scheduler(Policy())
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=site)])
    handle_seconds, handles_us = _all(jobs, partial(_submit, scheduler))
    return {
        "gpus": count,
        "jobs": count,
        "placed": len(occupancy.owners),
        "seconds": seconds,
        "handle_seconds": handle_seconds,
        **figures(searches_us),
        **figures(handles_us, "handle_"),
    }


def refusals(gpus: int, decisions: int, seed: int) -> dict[str, Any]:
    """Gangs of ten members for which no leaf has room: why, and what would help, on a half-full cluster.

    Every other gang fits no leaf at all; between two of them another job takes a GPU, so that nothing is as it was.
    Gives {"gpus", "decisions", "refused" (share), "median_us", "p99_us"}; nobody asks the scheduler for reasons in a
    turn.
    """
    site = half_full(gpus, Random(seed))  # noqa: S311 - a repeatable load, no secret
    occupancy = Occupancy(Fabric.build(site))
    times_us, refused = [], 0
    for number in range(WARM_UP + decisions):
        place_and_take(occupancy, Job(f"one-{number}", (Role("worker", 1, Shape(gpus=1)),)))
        shape = Shape(gpus=GPUS_OF_NODE if number % 2 else GPUS_OF_LEAF // REFUSED_MEMBERS)
        role = Role("worker", REFUSED_MEMBERS, shape)
        job = Job(f"g{number}", (role,), topology=TopologySpec(required="leaf"))
        time_us, verdict = timed_us(partial(place, occupancy, job))
        times_us.append(time_us)
        refused += number >= WARM_UP and isinstance(verdict, Refused)
    return {
        "gpus": len(site.nodes) * GPUS_OF_NODE,
        "decisions": decisions,
        "refused": refused / decisions,
        **figures(times_us[WARM_UP:]),
    }


def _all(jobs: list[Job], act: Callable[[Job], object]) -> tuple[float, list[float]]:
    """(seconds for all jobs one after the other, microseconds of each)."""
    start_ns = perf_counter_ns()
    times_us = [timed_us(partial(act, job))[0] for job in jobs]
    return round((perf_counter_ns() - start_ns) / 1e9, 4), times_us


def _submit(scheduler: Scheduler, job: Job) -> None:
    scheduler.handle([JobSubmitted(id=job.name, observed_at=0.0, job=job.name, spec=job)])
