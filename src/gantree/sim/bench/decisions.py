"""Benchmark of one gang decision: the search alone, and a whole call of `Scheduler.handle`.

A search is timed from the request to the gang's place, member by member with GPUs, NICs and rank, priced, and the
occupancy that holds it. The newest KEPT gangs that fitted stay where they were put, so that each decision finds a
cluster that has changed since the last; what leaves is not timed. The first tenth of the decisions warms up what is
built once per shape of member, and is not counted. What is there before the first decision is kept from the garbage
collector, as the daemon does.
"""

import gc
from collections import deque
from functools import partial
from random import Random
from typing import Any

from gantree.core.scheduler import Scheduler
from gantree.model.cluster import Cluster
from gantree.model.events import CancelRequested, ClusterObserved, Event, GangEnded, JobSubmitted
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.policy.rules import Policy
from gantree.sim.bench.mix import GPUS_OF_NODE, gang, half_full
from gantree.sim.bench.timing import figures, timed_us
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

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
    searches_us, refused = search_times_us(site, jobs, KEPT)
    handles_us = handle_times_us(site, jobs, KEPT)
    return {
        "gpus": len(site.nodes) * GPUS_OF_NODE,
        "decisions": decisions,
        "refused": round(sum(refused[warm_up:]) / decisions, 4),
        **figures(searches_us[warm_up:]),
        **figures(handles_us[warm_up:], "handle_"),
    }


def place_and_take(occupancy: Occupancy, job: Job) -> Placement | Refused:
    """One decision: the gang's place, held from now on, or why there is none."""
    verdict = place(occupancy, job)
    if isinstance(verdict, Placement):
        occupancy.take(job.name, verdict.members)
    return verdict


def search_times_us(site: Cluster, jobs: list[Job], kept: int) -> tuple[list[float], list[bool]]:
    """Microseconds of each decision, and whether it was a refusal; `kept` gangs stay at a time."""
    occupancy = Occupancy(Fabric.build(site))
    gc.freeze()
    held: deque[str] = deque()
    times_us, refused = [], []
    for job in jobs:
        time_us, verdict = timed_us(partial(place_and_take, occupancy, job))
        times_us.append(time_us)
        refused.append(isinstance(verdict, Refused))
        if isinstance(verdict, Placement):
            held.append(job.name)
        if len(held) > kept:
            occupancy.give_back(held.popleft())
    return times_us, refused


def handle_times_us(site: Cluster, jobs: list[Job], kept: int) -> list[float]:
    """Microseconds of `Scheduler.handle` a submission. A gang that was refused is cancelled before the next one."""
    scheduler = Scheduler(Policy())
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=site)])
    gc.freeze()
    held: deque[str] = deque()
    times_us = []
    for number, job in enumerate(jobs):
        now = float(number)
        submitted = JobSubmitted(id=job.name, observed_at=now, job=job.name, spec=job)
        time_us, _ = timed_us(partial(scheduler.handle, (submitted,)))
        times_us.append(time_us)
        if job.name in scheduler.ledger.holding:
            held.append(job.name)
        else:
            scheduler.handle([CancelRequested(id=f"-{job.name}", observed_at=now, job=job.name)])
        if len(held) > kept:
            scheduler.handle([ended(held.popleft(), now)])
    return times_us


def ended(job: str, now: float) -> Event:
    """The first attempt of a job has ended well."""
    return GangEnded(id=f"{job}/ended", observed_at=now, job=job, attempt=1, exit_code=0)
