"""The loop of a simulation: takes the next event from the heap, calls `Scheduler.handle`, carries out its orders.

The scheduler is the one that the daemon runs. All events of one moment go into one batch. Time that alone could
change an answer (`wake_at`) becomes a `TimePassed`. The run is over when nothing is foretold and nothing is
waited for; what then still waits can never start, and the result says why. Nothing here asks a clock or draws
lots, so equal input gives equal output, byte for byte.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf

from gantree.core.scheduler import Decision, Scheduler
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.model.events import (
    CancelRequested,
    CheckpointSaved,
    ClusterObserved,
    EndedJobsDue,
    Event,
    GangEnded,
    GangStarted,
    JobSubmitted,
    RankSlownessObserved,
    TimePassed,
)
from gantree.model.facts import JobEnded, JobRejected, StopDecided
from gantree.model.jobs import Job
from gantree.model.phases import FAILURES
from gantree.planning.cells.domains import CellDomains
from gantree.policy.rules import Policy
from gantree.sim.attempt_events import WorkDone
from gantree.sim.cluster import Overheads, SimCluster
from gantree.sim.heap import EventHeap
from gantree.sim.load import REQUESTS, Load
from gantree.sim.record import Record
from gantree.sim.results import Gathering, JobRow, Result
from gantree.sim.rows import SpilledRows
from gantree.sim.running.autoscaled import SampleDue
from gantree.sim.running.faults import Faults
from gantree.sim.running.model import RunningModel
from gantree.sim.running.pace import Pace
from gantree.sim.running.site import Site
from gantree.sim.running.transfers import SaveDue, TransferDone, TransferDue
from gantree.sim.use_reports import UseReportDue, UseReports
from gantree.sim.workload import check_trace, job_of, on_any_market
from gantree.topology.fabric.fabric import Fabric

NOTHING_BUT_WORK = RunningModel()
"""Jobs work at speed 1 wherever they are placed, and nothing fails."""

OF_THE_CLUSTER = (
    GangStarted, CheckpointSaved, GangEnded, WorkDone, SaveDue, TransferDue, TransferDone,
)  # fmt: skip
"""Events of the heap that `SimCluster.happen` takes."""

MOST_SAVES_TOLD_LATE = 1_000
"""Saves that wait for the next event at most."""

FORGOTTEN_AT_ONCE = 1_000
"""Jobs of a bounded run that the scheduler forgets in one decision."""

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
    bounded: bool = False,
) -> Result:
    """Replay a trace (or its first `limit` rows) on a cluster, from its first submission to the end.

    jobs says which job a row of the trace is; its name is `workload.job_id`. progress is told (jobs that have ended,
    jobs) now and then, and at the end. running is what else is simulated of running, seed that of what it draws.
    bounded: for traces larger than memory; rows must come in the order of submission, and those of jobs that are over
    wait on disk (progress then knows of the jobs that have been submitted). Raises BadInput for a trace or a cluster
    that contradicts itself.
    """
    simulation = Simulation(
        cluster,
        islice(trace, limit),
        policy,
        overheads or Overheads(),
        jobs,
        running=running,
        seed=seed,
        bounded=bounded,
    )
    told = 0
    while simulation.step():
        ended, known = simulation.load.over, simulation.load.submitted
        if progress is not None and (ended - told) * PROGRESS_STEPS >= known and ended > told:
            progress(ended, known)
            told = ended
    if progress is not None:
        progress(simulation.load.over, simulation.load.submitted)
    return simulation.result()


class Simulation:
    """One run, step by step. now is the simulated time in seconds, on the time line of the trace."""

    def __init__(
        self,
        cluster: Cluster,
        trace: Iterable[TraceJob],
        policy: Policy,
        overheads: Overheads,
        jobs: Callable[[TraceJob], Job] = job_of,
        *,
        running: RunningModel = NOTHING_BUT_WORK,
        seed: int = 0,
        bounded: bool = False,
    ) -> None:
        """bounded: the trace comes in the order of submission, and jobs that are over are kept on disk alone."""
        self._running, self._seed, self._together_s = running, seed, overheads.together_s
        coming = iter(trace) if bounded else None
        first = None if coming is None else next(coming, None)
        whole = () if coming is not None else tuple(trace)
        check_trace(whole)
        self._trace = on_any_market(whole, cluster)
        begins = [row.submit_s for row in whole] if first is None else [first.submit_s]
        self.now = min(begins, default=0.0)
        self.scheduler = Scheduler(policy)
        self.record = Record(bounded=bounded)
        self._rows = SpilledRows() if bounded else None
        self._to_forget = 0
        self._replica_rows: list[JobRow] = []
        self._heap = EventHeap()
        self._batch: list[Event] = []
        self._saves_waiting = 0
        self.cluster = SimCluster(
            self._heap,
            self._emitted,
            lambda: self.now,
            overheads,
            Pace(running, cluster, seed) if running.on else None,
            running.checkpoints,
        )
        self._use_reports = UseReports(self._heap)
        self._wake_at: float | None = None
        self._wakes = 0
        self._decided_at, self._decisions_now = self.now, 0
        fabric = Fabric.build(cluster)
        self.site = Site(fabric)
        self._faults = Faults(running, fabric, seed, self.now)
        self._idle_until: float | None = None
        CellDomains.of(policy.queues, fabric)
        self._handle([ClusterObserved(id="cluster", observed_at=self.now, cluster=cluster)])
        self.load = Load(self.cluster, self._heap, jobs, running, seed)
        if coming is None:
            self.load.begin(self._trace, self.now)
        else:
            self.load.begin_stream(coming, first)

    def foretell(self, event: Event) -> None:
        """Let something happen that is no submission: a request of a user or an operator, or a change of the site.

        Its observed_at must not be before `now`.
        """
        self._heap.push(event, REQUESTS)

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
        if self._may_wait():
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
                if isinstance(event, GangStarted):
                    self._name_slow_nodes(event)
            elif isinstance(event, UseReportDue):
                self._batch += self._use_reports.due(moment)
            elif isinstance(event, SampleDue):
                self.load.sampled(event)
            else:
                self._batch.append(event)
                if isinstance(event, JobSubmitted | CancelRequested):
                    self.load.happened(event)
        if self.load.is_stalled(moment):
            self.load.end_services(moment)

    def _emitted(self, event: Event) -> None:
        """Take an event of the cluster, and how a gang used its GPUs until its end if its row says how busy it is."""
        self._batch.append(event)
        if isinstance(event, GangStarted | GangEnded):
            self.load.emitted(event)
        if isinstance(event, GangEnded):
            self._batch += self._use_reports.end(event.job, self.now)
        elif isinstance(event, GangStarted) and event.job in self.load.open_rows:
            busy = self.load.open_rows[event.job][1].busy
            of_model = self.scheduler.ledger.jobs[event.job].metered.gpus_of_model
            if busy is not None:
                gpus = sum(gpus for _, gpus in of_model)
                self._use_reports.begin(event.job, event.attempt, gpus, busy, self.now)

    def _name_slow_nodes(self, started: GangStarted) -> None:
        """Foretell when the scheduler hears which nodes slow an attempt, if it does at all."""
        slow, pace = self._running.stragglers, self.cluster.pace
        placement = self.scheduler.ledger.jobs[started.job].placement
        if slow is None or slow.named_after_s is None or pace is None or placement is None:
            return
        for node, speed in pace.slow_nodes(placement.nodes).items():
            named = RankSlownessObserved(
                id=f"slow/{started.job}/{started.attempt}/{node}",
                observed_at=started.observed_at + slow.named_after_s,
                job=started.job,
                attempt=started.attempt,
                rank=[member.node for member in placement.members].index(node),
                node=node,
                slowdown=1 / speed,
            )
            self._heap.push(named)

    def _may_wait(self) -> bool:
        """Whether what has happened need not be decided on at once: saves that gangs make by themselves change no
        decision but a later one. With a model of running they are frequent, and are told with the next event; unless
        gangs may leave degraded links, which they do right after a save.
        """
        if not self._running.on or len(self._batch) >= MOST_SAVES_TOLD_LATE:
            return not self._batch
        if self.scheduler.ledger.site.links and self.scheduler.policy.leave_degraded:
            return not self._batch
        if not all(map(_is_save_by_itself, islice(self._batch, self._saves_waiting, None))):
            return False
        self._saves_waiting = len(self._batch)
        return True

    def _taken_batch(self) -> list[Event]:
        batch, self._saves_waiting = list(self._batch), 0
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
        for fact in decision.facts:
            if isinstance(fact, JobEnded | JobRejected):
                self._end(fact.job)
        return decision

    def _end(self, job: str) -> None:
        """A job is over; of a bounded run its row is written, and nobody remembers it."""
        found = self.load.ended(job, self.now)
        if self._rows is None:
            return
        if found is not None:
            self._rows.put(found[0], self._gathering().row(found[1]))
        elif job in self.cluster.work_of_job:
            self._replica_rows.append(self._gathering().row(self.load.over_replicas.pop()[1].row))
        self.cluster.forget(job)
        self.record.forget(job)
        self._to_forget += 1
        if self._to_forget == FORGOTTEN_AT_ONCE:
            self._to_forget = 0
            due = EndedJobsDue(
                id=f"forget-{self.record.ended}", observed_at=self.now, keep=0, ended_before=inf
            )
            self._batch.append(due)

    def _gathering(self) -> Gathering:
        ledger = self.scheduler.ledger
        return Gathering(ledger, self.record, self.cluster.work_of_job, self.now)

    def result(self) -> Result:
        """What has come out so far. Of a bounded run it can be asked for once, at its end."""
        gathering = self._gathering()
        replicas = [*self.load.over_replicas, *self.load.open_replicas.items()]
        rows: Sequence[JobRow] = tuple(map(gathering.row, self._trace))
        if self._rows is not None:
            for position, row in self.load.open_rows.values():
                self._rows.put(position, gathering.row(row))
            rows = self._rows
        return gathering.result(
            rows,
            (*self._replica_rows, *(gathering.row(replica.row) for _, replica in replicas)),
            self._running,
            self._seed,
            self.site.counts,
            {name: service.figures for name, service in self.load.autoscaled.items()},
        )


def _is_save_by_itself(event: Event) -> bool:
    """Whether a gang has saved without having been asked to."""
    return isinstance(event, CheckpointSaved) and event.request is None
