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
from gantree.model.jobs import Job
from gantree.planning.cells.domains import CellDomains
from gantree.policy.rules import Policy
from gantree.sim.cluster import Overheads, SimCluster
from gantree.sim.heap import EventHeap
from gantree.sim.record import Record
from gantree.sim.results import Result, gather
from gantree.sim.running.model import RunningModel
from gantree.sim.running.step_speed import StepSpeed
from gantree.sim.workload import check_trace, job_id, job_of
from gantree.topology.fabric.fabric import Fabric

NOTHING_BUT_WORK = RunningModel()
"""Jobs work at speed 1 wherever they are placed, and nothing fails."""

SUBMISSIONS_LAST = 1
"""Priority of submissions within one moment: first (0) what happens on the cluster, then what is asked of it."""

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
        self._running, self._seed = running, seed
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
            StepSpeed(cluster) if running.step_time or running.contention else None,
        )
        self._wake_at: float | None = None
        self._wakes = 0
        self._decided_at, self._decisions_now = self.now, 0
        CellDomains.of(policy.queues, Fabric.build(cluster))
        self._handle([ClusterObserved(id="cluster", observed_at=self.now, cluster=cluster)])
        for row in trace:
            self._schedule_event(row, jobs(row))

    def _schedule_event(self, row: TraceJob, spec: Job) -> None:
        job = job_id(row)
        self.cluster.expect(job, row.duration_s, row.checkpoint_s or None, spec.members, spec)
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
        foretold_at = self._heap.next_moment()
        if foretold_at is None and self._wake_at is None:
            return False
        if foretold_at is None or (self._wake_at is not None and self._wake_at < foretold_at):
            self._wake()
        else:
            self._take_moment(foretold_at)
        return True

    def _take_moment(self, moment: float) -> None:
        """Let everything happen that is foretold for a moment, and decide on all of it at once."""
        self.now = moment
        while self._heap.next_moment() == moment:
            event = self._heap.pop()
            if isinstance(event, GangStarted | CheckpointSaved | GangEnded):
                self.cluster.happen(event)
            else:
                self._batch.append(event)
        self.cluster.charge()
        batch = tuple(self._batch)
        self._batch.clear()
        self._handle(batch)

    def _wake(self) -> None:
        """Time alone has come to the moment that the last decision asked for."""
        assert self._wake_at is not None
        self._wakes += 1
        self.now = max(self.now, self._wake_at)
        self.cluster.charge()
        self._handle([TimePassed(id=f"wake-{self._wakes}", observed_at=self.now)])

    def _handle(self, events: Sequence[Event]) -> Decision:
        self._decisions_now = self._decisions_now + 1 if self.now == self._decided_at else 1
        self._decided_at = self.now
        assert self._decisions_now < MOST_DECISIONS, f"time stands still at {self.now}"
        decision = self.scheduler.handle(events)
        self._wake_at = decision.wake_at
        for order in decision.orders:
            self.cluster.carry_out(order)
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
        )
