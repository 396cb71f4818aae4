"""Kueue's performance test of topology-aware scheduling: its cluster, gangs and arrivals; no API server, no queues.

From kubernetes-sigs/kueue at ff69552e, test/performance/scheduler/configs/tas: one block of 10 racks of 64 nodes, of
96 CPUs and 256 GiB. 5 cohorts of 6 queues, each with 500 gangs of three classes, of which a part must stay in one rack,
a part would like to, and a part comes in slices of one rack ("balanced"). Kueue's quotas (20 CPUs a queue, 100 to
borrow) are not applied here: every gang is offered to the whole cluster when it arrives.

The clock is simulated: arrivals and run times are those of the test, and a gang's members work from its start on. What
is measured is the time that `Scheduler.handle` takes over all events: arrivals, starts and ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from time import perf_counter_ns
from typing import Any

from gantree.core.scheduler import Scheduler
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.events import ClusterObserved, Event, GangEnded, GangStarted, JobSubmitted
from gantree.model.facts import GangPlaced
from gantree.model.jobs import Job, Role, Shape, Slices, TopologySpec
from gantree.policy.rules import Policy
from gantree.sim.bench.timing import figures

RACKS, NODES_OF_RACK = 10, 64
QUEUES = 30
MACHINE = Machine("tas-node", gpus=0, cpus=96, memory_GiB=256)


@dataclass(frozen=True, slots=True)
class GangClass:
    """Gangs of one size: so many a queue that must stay in a rack, would like to, and come in slices."""

    name: str
    members: int
    cpus: float
    runs_s: float
    priority: int
    every_s: float
    required: int
    preferred: int
    sliced: int
    slice_members: int


CLASSES = (
    GangClass("small", 2, 0.5, 0.2, 50, 0.1, 120, 120, 110, 1),
    GangClass("medium", 4, 1.25, 0.5, 100, 0.5, 34, 33, 33, 2),
    GangClass("large", 8, 2.5, 1.0, 200, 1.2, 17, 17, 16, 4),
)


def tas(queues: int = QUEUES) -> dict[str, Any]:
    """Run the test with so many queues of 500 gangs.

    Gives {"gangs", "placed", "events", "seconds" (in `handle`), "makespan_s" (simulated), "wait_s" (mean, simulated),
    and the figures of single calls}.
    """
    scheduler = Scheduler(Policy())
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=_cluster())])
    runs_s: dict[str, float] = {}
    heap: list[tuple[float, int, Event]] = []
    for number, (arrival_s, job, run_s) in enumerate(_arrivals(queues)):
        runs_s[job.name] = run_s
        heappush(heap, (arrival_s, number, _submitted(job, arrival_s)))
    gangs, count, waits_s, times_us, now = len(heap), len(heap), 0.0, [], 0.0
    placed = 0
    arrived_s = {event.job: at for at, _, event in heap if isinstance(event, JobSubmitted)}
    while heap:
        now, _, event = heappop(heap)
        start_ns = perf_counter_ns()
        decision = scheduler.handle((event,))
        times_us.append((perf_counter_ns() - start_ns) / 1000)
        for fact in decision.facts:
            if isinstance(fact, GangPlaced):
                placed += 1
                waits_s += now - arrived_s[fact.job]
                for follows in _follow(fact, runs_s[fact.job], now):
                    heappush(heap, (follows.observed_at, count, follows))
                    count += 1
    return {
        "gangs": gangs,
        "placed": placed,
        "events": len(times_us),
        "seconds": round(sum(times_us) / 1e6, 4),
        "makespan_s": round(now, 3),
        "wait_s": round(waits_s / placed, 6),
        **figures(times_us),
    }


def _cluster() -> Cluster:
    nodes = tuple(
        Node(f"r{rack}-n{number}", MACHINE.name, ("b0", f"r{rack}"))
        for rack in range(RACKS)
        for number in range(NODES_OF_RACK)
    )
    return Cluster("tas", ("block", "rack", "node"), {MACHINE.name: MACHINE}, nodes)


def _arrivals(queues: int) -> Iterator[tuple[float, Job, float]]:
    """(second, gang, seconds that it runs); every queue gets a gang of a class each time its interval is over."""
    for queue in range(queues):
        for kind in CLASSES:
            wishes = (
                [TopologySpec(required="rack")] * kind.required
                + [TopologySpec(preferred="rack")] * kind.preferred
                + [TopologySpec(slices=(Slices(kind.slice_members, "rack"),))] * kind.sliced
            )
            role = Role("worker", kind.members, Shape(cpus=kind.cpus))
            for number, wish in enumerate(wishes):
                name = f"{kind.name}-{queue}-{number}"
                job = Job(name, (role,), f"q{queue}", kind.priority, wish)
                yield (number + 1) * kind.every_s, job, kind.runs_s


def _submitted(job: Job, at_s: float) -> JobSubmitted:
    return JobSubmitted(id=job.name, observed_at=at_s, job=job.name, spec=job)


def _follow(placed: GangPlaced, run_s: float, now: float) -> Iterator[Event]:
    """What comes of a gang that was placed: it starts at once, and ends when it has run."""
    job, attempt = placed.job, placed.attempt
    yield GangStarted(id=f"{job}/started", observed_at=now, job=job, attempt=attempt)
    end_s = now + run_s
    yield GangEnded(id=f"{job}/ended", observed_at=end_s, job=job, attempt=attempt, exit_code=0)
