"""What is submitted in a run: the rows of the trace and the replicas of services, and which of them are still open.

A trace that is at hand is put on the event heap as a whole. One that is larger than memory comes in the order of
submission, and only its next row is on the heap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, isfinite

from gantree.formats.traces import TraceJob
from gantree.model.errors import BadInput
from gantree.model.events import CancelRequested, JobSubmitted
from gantree.model.jobs import Job
from gantree.sim.cluster import SimCluster
from gantree.sim.heap import EventHeap
from gantree.sim.running.jobs import prepared
from gantree.sim.running.model import DAY_S, RunningModel
from gantree.sim.running.services import Replica, replicas
from gantree.sim.workload import check_row, job_id, job_of

SUBMISSIONS = 1
"""Priority of submissions within one moment: first (0) what happens on the cluster, then what is asked of it."""

REQUESTS = 2
"""Priority of requests, after submissions."""


class Load:
    """Puts submissions on the heap and tells the cluster how much work each is."""

    def __init__(
        self,
        cluster: SimCluster,
        heap: EventHeap,
        jobs: Callable[[TraceJob], Job],
        running: RunningModel,
    ) -> None:
        self._cluster = cluster
        self._heap = heap
        self._jobs = jobs
        self._running = running
        self._coming: Iterator[tuple[int, TraceJob]] = iter(())
        self._last_s = 0.0
        self._replicas: Iterator[Replica] = iter(())
        self._services_are_over = False
        self._next_replica: tuple[str, int] | None = None
        self._withdrawal_of: dict[str, int] = {}
        self._active_at = 0.0
        self.submitted = 0
        self.open_rows: dict[str, tuple[int, TraceJob]] = {}
        self.open_replicas: dict[str, Replica] = {}
        self.over_replicas: list[tuple[str, Replica]] = []

    @property
    def over(self) -> int:
        """How many jobs of the trace are over."""
        return self.submitted - len(self.open_rows)

    def begin(self, trace: Sequence[TraceJob], now: float) -> None:
        """Submit a trace that is at hand; services run from now on."""
        for position, row in enumerate(trace):
            self._submit(position, row)
        self._begin_services(now)

    def begin_stream(self, trace: Iterator[TraceJob], first: TraceJob | None) -> None:
        """Submit a trace row by row, of which the first has been read already."""
        if first is None:
            return
        self._coming = enumerate(trace, start=1)
        self._last_s = first.submit_s
        check_row(first)
        self._submit(0, first)
        self._begin_services(first.submit_s)

    def happened(self, event: JobSubmitted | CancelRequested) -> None:
        """A submission has come: put the one after it on the heap."""
        if isinstance(event, CancelRequested):
            if event.id == _withdrawal_id(event.job):
                del self._withdrawal_of[event.job]
            return
        if event.job in self.open_replicas:
            until_s = self.open_replicas[event.job].until_s
            if isfinite(until_s):
                self._withdraw(event.job, until_s)
            self._next_replica = None
            self._submit_replica(event.observed_at)
            return
        self._active_at = event.observed_at
        for position, row in self._coming:
            check_row(row)
            if row.submit_s < self._last_s:
                raise BadInput(
                    f"trace: job {row.job_id} is submitted at {row.submit_s:g} s, after one of {self._last_s:g} s; "
                    "a trace that is read part by part must be in the order of submission"
                )
            self._last_s = row.submit_s
            if job_id(row) in self.open_rows:
                raise BadInput(f"trace: job {row.job_id} is there twice")
            self._submit(position, row)
            return

    def ended(self, job: str, now: float) -> tuple[int, TraceJob] | None:
        """A job is over: its row and position, of a job of the trace. With the last of these services end, too."""
        replica = self.open_replicas.pop(job, None)
        if replica is not None:
            if job in self._withdrawal_of:
                self._heap.retract(self._withdrawal_of.pop(job))
            self.over_replicas.append((job, self._cut(replica, now)))
            return None
        self._active_at = now
        found = self.open_rows.pop(job, None)
        if not self.open_rows:
            self.end_services(now)
        return found

    def is_stalled(self, now: float) -> bool:
        """Whether nothing of the trace has come or ended for so long that services alone keep the run going."""
        return bool(self.open_replicas) and now > self._active_at + 2 * DAY_S

    def _submit(self, position: int, row: TraceJob) -> None:
        job = job_id(row)
        spec = prepared(self._jobs(row), row.duration_s, self._running)
        saves_every_s = row.checkpoint_s or None
        if self._running.on and saves_every_s is None and spec.checkpoint is not None:
            saves_every_s = spec.checkpoint.every_s
        self._cluster.expect(job, row.duration_s, saves_every_s, spec.members, spec)
        self.open_rows[job] = position, row
        self.submitted += 1
        self._push(job, row.submit_s, spec)

    def _push(self, job: str, at: float, spec: Job) -> int:
        submitted = JobSubmitted(id=f"{job}/submitted", observed_at=at, job=job, spec=spec)
        return self._heap.push(submitted, SUBMISSIONS)

    def _begin_services(self, now: float) -> None:
        self._active_at = now
        self._replicas = replicas(self._running.services, now)
        self._submit_replica(now)

    def _submit_replica(self, now: float) -> None:
        """Put the next replica on the heap, while anything of the trace is open."""
        replica = None if self._services_are_over else next(self._replicas, None)
        if replica is None:
            return
        row = replica.row
        job, spec = job_id(row), replace(job_of(row), communicates=False)
        self._cluster.expect(job, inf, None, spec.members, spec, ends_at=replica.until_s)
        self.open_replicas[job] = replica
        self._next_replica = job, self._push(job, max(now, row.submit_s), spec)

    def end_services(self, now: float) -> None:
        """Let no replica begin any more, and end all that are there."""
        if self._services_are_over:
            return
        self._services_are_over = True
        if self._next_replica is not None:
            job, number = self._next_replica
            self._heap.retract(number)
            del self.open_replicas[job]
            self._cluster.forget(job)
        for job in self.open_replicas:
            self._cluster.end_by(job, now)
            self._withdraw(job, now)

    def _withdraw(self, job: str, at: float) -> None:
        """A replica that was not started in time is not started any more."""
        request = CancelRequested(
            id=_withdrawal_id(job), observed_at=at, job=job, reason="not wanted any more"
        )
        if job in self._withdrawal_of:
            self._heap.retract(self._withdrawal_of[job])
        self._withdrawal_of[job] = self._heap.push(request, REQUESTS)

    def _cut(self, replica: Replica, now: float) -> Replica:
        until_s = min(replica.until_s, max(now, replica.row.submit_s))
        row = replace(replica.row, duration_s=until_s - replica.row.submit_s)
        return replace(replica, row=row, until_s=until_s)


def _withdrawal_id(job: str) -> str:
    return f"{job}/withdrawn"
