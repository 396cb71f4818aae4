"""Benchmark of a long queue: 10,000 gangs of 50 queues are pending on a cluster on which none of them fits.

The cluster is that of `sim.bench.mix`. Half of the queues are guaranteed half of the GPUs together and use all of it;
the jobs of the others borrow, and have the highest priority class. One GPU is free on a sixteenth of the nodes, and no
pending gang requests a single GPU. So gangs wait for free GPUs and for quota, and none may preempt. All running gangs
have time limits, so starts can be reserved. Pending gangs have about 60 shapes and sizes, three classes and six limits.

Two measurements: a full cycle of a scheduler without state from earlier cycles, and one event in the steady state: a
gang ends and others start, a gang is submitted that must wait, a node is lost, a node returns, and a preempted gang has
stopped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import fmean, median
from time import process_time_ns
from typing import Any

from gantree.core.scheduler import Decision, Scheduler, settled
from gantree.model.events import (
    ClusterObserved,
    Event,
    GangEnded,
    GangStarted,
    JobSubmitted,
    NodeLost,
    NodeReturned,
    TimePassed,
)
from gantree.model.facts import (
    Fact,
    GangPlaced,
    ReservationDropped,
    ReservationMade,
    RoomClaimed,
    StopDecided,
)
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.sim.bench.mix import GPUS_OF_NODE, empty_cluster
from gantree.sim.results import nearest_rank

QUEUES = 50
REPEATS = 5
"""Full cycles that are measured; the median is reported."""
ONE_FREE_IN = 16
"""One node in so many has a free GPU."""
CLASSES = ("research", "batch", "production")
LIMITS_S = (1800.0, 3600.0, 14_400.0, 28_800.0, 86_400.0, 259_200.0)
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 16, 32)
"""Members of pending gangs, by frequency."""
RUNNING_SIZES = (1, 2, 4, 8, 16)


def queue(
    gpus: int = 16_384,
    gangs: int = 10_000,
    events: int = 200,
    reservations: int = 4,
    *,
    limited: bool = False,
) -> dict[str, Any]:
    """Measure a full cycle with so many pending gangs, then so many events, in CPU time of this thread.

    limited: each queue is limited to what it runs and a node of its share is idle, so gangs wait behind limits.

    Returns {"gpus", "waiting", "lines" (equivalence classes), "reservations", "running", "full_cycle_ms" (reservations
    are kept), "full_cycle_telling_ms" (reservations are made again), "events", "placed" (by the events),
    "changed_nothing" (events after which no other job was placed, reserved or stopped)}, and "KIND_mean_ms",
    "KIND_median_ms" and "KIND_p99_ms" for each kind of event: "ended", "left" (a preempted gang stopped), "came",
    "lost", "returned", for "all", and for "nothing" (those of changed_nothing).
    """
    life = _Life(gpus, reservations, limited)
    life.fill()
    life.crowd(gangs)
    ledger = life.scheduler.ledger
    figures: dict[str, Any] = {
        "gpus": gpus,
        "waiting": len(ledger.waiting),
        "lines": sum(1 for _ in ledger.waiting),
        "reservations": reservations,
        "running": len(ledger.holding),
        "full_cycle_ms": life.full_cycle_ms(life.facts),
        "full_cycle_telling_ms": life.full_cycle_ms(
            [fact for fact in life.facts if not isinstance(fact, ReservationMade)]
        ),
    }
    measured = life.steady(events)
    times_ms: dict[str, list[float]] = {}
    for event in measured:
        for kind in (event.kind, "all", *(() if event.changed else ("nothing",))):
            times_ms.setdefault(kind, []).append(event.time_ms)
    figures |= {"events": events, "placed": sum(event.placed for event in measured)}
    figures["changed_nothing"] = len(times_ms.get("nothing", ()))
    for kind, of_kind in times_ms.items():
        ordered = sorted(of_kind)
        figures[f"{kind}_mean_ms"] = _rounded(fmean(of_kind))
        figures[f"{kind}_median_ms"] = _rounded(nearest_rank(ordered, 50))
        figures[f"{kind}_p99_ms"] = _rounded(nearest_rank(ordered, 99))
    return figures


def _rounded(time_ms: float | None) -> float | None:
    return None if time_ms is None else round(time_ms, 3)


@dataclass(slots=True)
class _Life:
    """A scheduler, its recorded facts, and the load on it."""

    gpus: int
    reservations: int
    limited: bool = False
    random: Random = field(default_factory=lambda: Random(1))  # noqa: S311 - a repeatable load, no secret
    facts: list[Fact] = field(default_factory=list)
    now: float = 0.0
    policy: Policy = field(init=False)
    scheduler: Scheduler = field(init=False)
    lost: str = ""
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.policy = policy_of(self.gpus, self.reservations, limited=self.limited)
        self.scheduler = Scheduler(self.policy)
        self.tell([ClusterObserved(id="site", observed_at=0.0, cluster=empty_cluster(self.gpus))])

    def tell(self, events: Iterable[Event]) -> tuple[float, Decision]:
        """(milliseconds of processor time of all passes, what was decided); gangs that were placed are started."""
        time_ms, decision = self._timed(tuple(events))
        placed = [fact for fact in decision.facts if isinstance(fact, GangPlaced)]
        if placed:
            started = [
                GangStarted(
                    id=f"s{fact.job}", observed_at=self.now, job=fact.job, attempt=fact.attempt
                )
                for fact in placed
            ]
            self._timed(started)
        return time_ms, decision

    def _timed(self, events: Sequence[Event]) -> tuple[float, Decision]:
        """A decision, and all that the scheduler asks to go on with at the same moment."""
        start_ns = process_time_ns()
        decision = settled(self.scheduler, events, self.now)
        time_ms = (process_time_ns() - start_ns) / 1e6
        self.facts += decision.facts
        return time_ms, decision

    def fill(self) -> None:
        """Fill the cluster: each queue runs as much as any other, each of its gangs a number of whole nodes."""
        nodes = self.gpus // GPUS_OF_NODE
        of_queue = [nodes // QUEUES + (number < nodes % QUEUES) for number in range(QUEUES)]
        if self.limited:
            of_queue = [_limited_nodes(self.gpus)] * QUEUES
        self.tell(
            self._submitted(job)
            for number, all_nodes in enumerate(of_queue)
            for job in self._running(number, all_nodes)
        )
        assert not len(self.scheduler.ledger.waiting), "all gangs that are to run have room"

    def _running(self, number: int, nodes: int) -> Iterator[Job]:
        """Gangs of a queue on so many nodes; those that borrow leave a GPU free here and there."""
        owed = number % 2 == 0
        while nodes:
            members = self.random.choice([size for size in RUNNING_SIZES if size <= nodes])
            nodes -= members
            leaves = not owed and (members == 1 or self.random.random() < 0.1) and not self.limited
            shape = Shape(gpus=GPUS_OF_NODE - leaves)
            yield self._job("r", number, members, shape, "serving", None)

    def crowd(self, gangs: int) -> None:
        """So many gangs come that must wait."""
        self.now += 60.0
        self.tell([self._submitted(self._waiting()) for _ in range(gangs)])
        assert len(self.scheduler.ledger.waiting) == gangs, "nothing fits"

    def _waiting(self) -> Job:
        random = self.random
        members = random.choice(SIZES)
        shape = Shape(gpus=random.choice((2, 4, 8, 8)))
        required = random.choice((None, None, "leaf", "spine"))
        if required == "leaf":
            members = min(members, 4)
        queue_number = random.randrange(QUEUES)
        return self._job("w", queue_number, members, shape, random.choice(CLASSES), required)

    def _job(
        self, kind: str, number: int, members: int, shape: Shape, name: str, required: str | None
    ) -> Job:
        return Job(
            f"{kind}{next(self.numbers)}",
            (Role("worker", members, shape),),
            _path(number),
            name,
            TopologySpec(required=required),
            time_limit_s=self.random.choice(LIMITS_S) if kind == "w" else 604_800.0,
        )

    def _submitted(self, job: Job) -> Event:
        return JobSubmitted(id=f"e{job.name}", observed_at=self.now, job=job.name, spec=job)

    # ----- what is measured

    def full_cycle_ms(self, facts: list[Fact]) -> float:
        """The median time of the first decision of a scheduler that was recovered from these facts."""
        times_ms = []
        for _ in range(REPEATS):
            scheduler = Scheduler(self.policy)
            scheduler.recover(facts)
            event = TimePassed(id="again", observed_at=self.now)
            start_ns = process_time_ns()
            decision = scheduler.handle([event])
            times_ms.append((process_time_ns() - start_ns) / 1e6)
            assert not any(isinstance(fact, GangPlaced) for fact in decision.facts), "nothing fits"
        return round(median(times_ms), 2)

    def steady(self, events: int) -> list["_Measured"]:
        """Half of them are ends, a quarter new gangs, a quarter nodes; beside them those who were told to leave."""
        measured = []
        for number in range(events):
            self.now += 1.0
            kind, event = self._next(number)
            time_ms, decision = self.tell([event])
            facts = decision.facts
            placed = sum(isinstance(fact, GangPlaced) for fact in facts)
            measured.append(_Measured(kind, time_ms, placed, any(map(_changes, facts))))
        return measured

    def _next(self, number: int) -> tuple[str, Event]:
        """Yield (kind, event); preempted gangs have stopped by the next event."""
        leaving = next(iter(self.scheduler.ledger.leaving), None)
        if leaving is not None:
            return "left", self._ended(leaving)
        if number % 2 == 0:
            holding = list(self.scheduler.ledger.holding)
            return "ended", self._ended(self.random.choice(holding))
        if number % 4 == 1:
            return "came", self._submitted(self._waiting())
        name, lost = f"e{number}", self.lost
        if lost:
            self.lost = ""
            return "returned", NodeReturned(id=name, observed_at=self.now, node=lost)
        self.lost = f"n{self.random.randrange(self.gpus // GPUS_OF_NODE)}"
        return "lost", NodeLost(id=name, observed_at=self.now, node=self.lost)

    def _ended(self, job: str) -> Event:
        """Nothing of the present attempt of a job is left."""
        attempt = self.scheduler.ledger.jobs[job].attempt
        name = f"x{next(self.numbers)}"
        return GangEnded(id=name, observed_at=self.now, job=job, attempt=attempt, exit_code=0)


@dataclass(frozen=True, slots=True)
class _Measured:
    """An event: its kind, what it took, how many it placed, and whether it changed anything for others."""

    kind: str
    time_ms: float
    placed: int
    changed: bool


def _changes(fact: Fact) -> bool:
    """Whether somebody was placed, told a start, or told to leave, or is so no more."""
    return isinstance(
        fact, GangPlaced | ReservationMade | ReservationDropped | RoomClaimed | StopDecided
    )


def policy_of(gpus: int, reservations: int, *, limited: bool = False) -> Policy:
    """The default policy with 50 queues in five departments, every other one with a guarantee that it uses."""
    has = (_limited_nodes(gpus) if limited else gpus // GPUS_OF_NODE // QUEUES) * GPUS_OF_NODE
    departments = [QueueRule(f"d{number}", weight=1.0 + number) for number in range(5)]
    queues = [
        QueueRule(
            _path(number),
            weight=1.0 + number % 3,
            guarantee={"gpus": has} if number % 2 == 0 else {},
            limit={"gpus": has if limited else 4.0 * has},
        )
        for number in range(QUEUES)
    ]
    backfill = Backfill("promised", reservations) if reservations else Backfill("any", 0)
    return Policy(queues=(*departments, *queues), backfill=backfill)


def _limited_nodes(gpus: int) -> int:
    """Nodes that each queue may use where it is limited: all but one of its share."""
    return max(1, gpus // GPUS_OF_NODE // QUEUES - 1)


def _path(number: int) -> str:
    return f"d{number % 5}/q{number}"
