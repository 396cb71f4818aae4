"""The loop of a simulation: takes the next event from the heap, calls `Scheduler.handle`, carries out its orders.

The scheduler is the one that the daemon runs. All events of one moment go into one batch. Time that alone could
change an answer (`wake_at`) becomes a `TimePassed`. The run is over when nothing is foretold and nothing is
waited for; what then still waits can never start, and the result says why. Nothing here asks a clock or draws
lots, so equal input gives equal output, byte for byte.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from gantree.core.scheduler import Decision, Scheduler
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.model.events import (
    CheckpointSaved,
    ClusterObserved,
    Event,
    GangEnded,
    GangStarted,
    JobSubmitted,
    TimePassed,
)
from gantree.model.facts import StopDecided
from gantree.model.jobs import Job
from gantree.model.phases import FAILURES
from gantree.planning.cells.domains import CellDomains
from gantree.policy.rules import Policy
from gantree.sim.attempt_events import WorkDone
from gantree.sim.cluster import Overheads, SimCluster
from gantree.sim.heap import EventHeap
from gantree.sim.record import Record
from gantree.sim.results import Result, gather
from gantree.sim.running.faults import Faults
from gantree.sim.running.jobs import prepared
from gantree.sim.running.model import RunningModel
from gantree.sim.running.pace import Pace
from gantree.sim.running.site import Site
from gantree.sim.running.transfers import SaveDue, TransferDone, TransferDue
from gantree.sim.workload import check_trace, job_id, job_of, on_any_market
from gantree.topology.fabric.fabric import Fabric

NOTHING_BUT_WORK = RunningModel()
"""Jobs work at speed 1 wherever they are placed, and nothing fails."""

SUBMISSIONS_LAST = 1
"""Priority of submissions within one moment: first (0) what happens on the cluster, then what is asked of it."""

OF_THE_CLUSTER = (
    GangStarted, CheckpointSaved, GangEnded, WorkDone, SaveDue, TransferDue, TransferDone,
)  # fmt: skip
"""Events of the heap that `SimCluster.happen` takes."""

MOST_SAVES_TOLD_LATE = 1_000
"""Saves that wait for the next event at most."""

MOST_DECISIONS = 10_000
"""Of one moment; every one answers what the one before began, and none of these chains is that long."""

PROGRESS_STEPS = 200
"""Progress reports over a whole run, at most."""


def simulate(
    cluster: Cluster,
    trace: Iterable[TraceJob],
    policy: Policy,
    *,
    overheads: Overheads | None = None,
    running: RunningModel = NOTHING_BUT_WORK,
    seed: int = 0,
    jobs: Callable[[TraceJob], Job] = job_of,
    progress: Callable[[int, int], None] | None = None,
    limit: int | None = None,
) -> Result:
    """Replay a trace (or its first `limit` rows) on a cluster, from its first submission to the end.

    jobs says which job a row of the trace is; its name is `workload.job_id`. progress is told (jobs that have ended,
    jobs) now and then, and at the end. running is what else is simulated of running, seed that of what it draws.
    Raises BadInput for a trace or a cluster that contradicts itself.
    """
    rows = tuple(islice(trace, limit))
    simulation = Simulation(
        cluster, rows, policy, overheads or Overheads(), jobs, running=running, seed=seed
    )
    told = 0
    while simulation.step():
        ended = simulation.record.ended
        if progress is not None and (ended - told) * PROGRESS_STEPS >= len(rows) and ended > told:
            progress(ended, len(rows))
            told = ended
    if progress is not None:
        progress(simulation.record.ended, len(rows))
    return simulation.result()


class Simulation:
    """One run, step by step. now is the simulated time in seconds, on the time line of the trace."""

    def __init__(
        self,
        cluster: Cluster,
        trace: Sequence[TraceJob],
        policy: Policy,
        overheads: Overheads,
        jobs: Callable[[TraceJob], Job] = job_of,
        *,
        running: RunningModel = NOTHING_BUT_WORK,
        seed: int = 0,
    ) -> None:
        check_trace(trace)
        trace = on_any_market(trace, cluster)
        self._running, self._seed, self._together_s = running, seed, overheads.together_s
        self.now = min((row.submit_s for row in trace), default=0.0)
        self.scheduler = Scheduler(policy)
        self.record = Record()
        self._trace = trace
        self._heap = EventHeap()
        self._batch: list[Event] = []
        self.cluster = SimCluster(
            self._heap,
            self._batch.append,
            lambda: self.now,
            overheads,
            Pace(running, cluster, seed) if running.on else None,
            running.checkpoints,
        )
        self._wake_at: float | None = None
        self._wakes = 0
        self._decided_at, self._decisions_now = self.now, 0
        fabric = Fabric.build(cluster)
        self.site = Site(fabric)
        self._faults = Faults(running, fabric, seed, self.now)
        self._idle_until: float | None = None
        CellDomains.of(policy.queues, fabric)
        self._handle([ClusterObserved(id="cluster", observed_at=self.now, cluster=cluster)])
        for row in trace:
            self._schedule_event(row, jobs(row))

    def _schedule_event(self, row: TraceJob, spec: Job) -> None:
        job = job_id(row)
        spec = prepared(spec, row.duration_s, self._running)
        saves_every_s = spec.checkpoint.every_s if spec.checkpoint else None
        if not self._running.on:
            saves_every_s = row.checkpoint_s or None
        self.cluster.expect(job, row.duration_s, saves_every_s, spec.members, spec)
        self._heap.push(
            JobSubmitted(id=f"{job}/submitted", observed_at=row.submit_s, job=job, spec=spec),
            SUBMISSIONS_LAST,
        )

    def foretell(self, event: Event) -> None:
        """Let something happen that is no submission: a request of a user or an operator, or a change of the site.

        Its observed_at must not be before `now`.
        """
        self._heap.push(event, SUBMISSIONS_LAST)

    def step(self) -> bool:
        """Go to the next moment and decide; False if nothing can happen any more."""
        foretold_at = self._next_moment()
        if foretold_at is None and self._wake_at is None:
            return False
        if foretold_at is None or (self._wake_at is not None and self._wake_at < foretold_at):
            self._wake()
        else:
            self._take_moment(foretold_at)
        return True

    def _next_moment(self) -> float | None:
        """When something is foretold next. Faults alone keep a run going until all that is broken now is repaired."""
        foretold_at, fault_at = self._heap.next_moment(), self._faults.next_moment()
        if foretold_at is not None or self._wake_at is not None:
            self._idle_until = None
        elif self._idle_until is None:
            self._idle_until = self._faults.repaired_by()
        if fault_at is None or (self._idle_until is not None and fault_at > self._idle_until):
            return foretold_at
        return fault_at if foretold_at is None else min(foretold_at, fault_at)

    def _take_moment(self, moment: float) -> None:
        """Let everything happen that is foretold for a moment, and decide on all of it at once.

        With it, what a daemon sees together with it (`Overheads.together_s`).
        """
        until = moment + self._together_s
        self._happen_at(moment)
        while self._together_s and (later := self._next_moment()) is not None and later <= until:
            self._happen_at(later)
        self.cluster.charge()
        if all(map(self._can_wait, self._batch)):
            self.cluster.repace()
        else:
            self._handle(self._taken_batch())

    def _happen_at(self, moment: float) -> None:
        self.now = moment
        while self._faults.next_moment() == moment:
            fault = self._faults.pop()
            self.cluster.degrade(fault)
            self._batch += self.site.events(fault, self.scheduler.ledger)
        while self._heap.next_moment() == moment:
            event = self._heap.pop()
            if isinstance(event, OF_THE_CLUSTER):
                self.cluster.happen(event)
            else:
                self._batch.append(event)

    def _can_wait(self, event: Event) -> bool:
        """Whether an event need not be decided on at once: a save that a gang makes by itself changes no decision but a
        later one. With a model of running they are frequent, and are told with the next event.
        """
        by_itself = isinstance(event, CheckpointSaved) and event.request is None
        return by_itself and self._running.on and len(self._batch) < MOST_SAVES_TOLD_LATE

    def _taken_batch(self) -> list[Event]:
        batch = list(self._batch)
        self._batch.clear()
        return batch

    def _wake(self) -> None:
        """Time alone has come to the moment that the last decision asked for."""
        assert self._wake_at is not None
        self._wakes += 1
        self.now = max(self.now, self._wake_at)
        self.cluster.charge()
        passed = TimePassed(id=f"wake-{self._wakes}", observed_at=self.now)
        self._handle([*self._taken_batch(), passed])

    def _handle(self, events: Sequence[Event]) -> Decision:
        self._decisions_now = self._decisions_now + 1 if self.now == self._decided_at else 1
        self._decided_at = self.now
        assert self._decisions_now < MOST_DECISIONS, f"time stands still at {self.now}"
        decision = self.scheduler.handle(events)
        self._wake_at = decision.wake_at
        for fact in decision.facts:
            if isinstance(fact, StopDecided) and fact.cause in FAILURES:
                self.cluster.note_failure(fact.job, fact.attempt)
        for order in decision.orders:
            self.cluster.carry_out(order)
        self.cluster.repace()
        self.record.note(decision.facts, self.scheduler.ledger, self.now)
        return decision

    def result(self) -> Result:
        """What has come out so far."""
        return gather(
            self._trace,
            self.scheduler.ledger,
            self.record,
            self.cluster.work_of_job,
            self.now,
            self._running,
            self._seed,
            self.site.counts,
        )
