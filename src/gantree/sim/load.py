"""What is submitted in a run: the rows of the trace and the replicas of services, and which of them are still open.

Replicas of services that follow a curve are known in advance; those of autoscaled ones are submitted, and ended, at
their samples.

A trace that is at hand is put on the event heap as a whole. One that is larger than memory comes in the order of
submission, and only its next row is on the heap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, isfinite

from gantree.formats.traces import TraceJob
from gantree.model.errors import BadInput
from gantree.model.events import CancelRequested, GangEnded, GangStarted, JobSubmitted
from gantree.model.jobs import Job
from gantree.sim.cluster import SimCluster
from gantree.sim.heap import EventHeap
from gantree.sim.running.autoscaled import AutoscaledService, Change, SampleDue
from gantree.sim.running.jobs import prepared
from gantree.sim.running.model import DAY_S, RunningModel
from gantree.sim.running.services import Replica, replica_of, replicas
from gantree.sim.workload import check_row, job_id, job_of

SUBMISSIONS = 1
"""Priority of submissions within one moment: first (0) what happens on the cluster, then what is asked of it."""

REQUESTS = 2
"""Priority of requests, after submissions."""

SAMPLES = 3
"""Priority of samples of services: what they begin and end happens at the same moment."""


class Load:
    """Puts submissions on the heap and tells the cluster how much work each is."""

    def __init__(
        self,
        cluster: SimCluster,
        heap: EventHeap,
        jobs: Callable[[TraceJob], Job],
        running: RunningModel,
        seed: int = 0,
    ) -> None:
        self._seed = seed
        self._cluster = cluster
        self._heap = heap
        self._jobs = jobs
        self._running = running
        self._coming: Iterator[tuple[int, TraceJob]] = iter(())
        self._last_s = 0.0
        self._replicas: Iterator[Replica] = iter(())
        self.autoscaled: dict[str, AutoscaledService] = {}
        self._number_of_replica: dict[str, tuple[AutoscaledService, int]] = {}
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
            if event.job not in self._number_of_replica:
                self._begin_replica(event.job, event.observed_at)
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

    def _begin_replica(self, job: str, now: float) -> None:
        """A replica of a service without autoscaler has been submitted; the next one follows."""
        until_s = self.open_replicas[job].until_s
        if isfinite(until_s):
            self._withdraw(job, until_s)
        self._next_replica = None
        self._submit_replica(now)

    def sampled(self, due: SampleDue) -> None:
        """An autoscaled service is sampled: its replicas begin and end, and the next sample is foretold."""
        service, now = self.autoscaled[due.service], due.observed_at
        if not self._services_are_over:
            self._change(service, service.sample(now), now)
            self._foretell_sample(service, now)

    def emitted(self, event: GangStarted | GangEnded) -> None:
        """A gang has started or ended; of an autoscaled service it is a replica that serves, or does not any more."""
        if event.job in self._number_of_replica:
            service, number = self._number_of_replica[event.job]
            if isinstance(event, GangStarted):
                service.started(number, event.observed_at)
            else:
                service.stopped(number)

    def ended(self, job: str, now: float) -> tuple[int, TraceJob] | None:
        """A job is over: its row and position, of a job of the trace. With the last of these services end, too."""
        replica = self.open_replicas.pop(job, None)
        if replica is not None:
            if job in self._withdrawal_of:
                self._heap.retract(self._withdrawal_of.pop(job))
            self._number_of_replica.pop(job, None)
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
        for each in self._running.services:
            if each.scaling is not None:
                service = AutoscaledService(each, self._seed, now)
                self.autoscaled[each.name] = service
                self._change(service, service.begin(now), now)
                self._foretell_sample(service, now)

    def _foretell_sample(self, service: AutoscaledService, now: float) -> None:
        name = service.service.name
        at = now + service.scaling.every_s
        self._heap.push(SampleDue(id=f"sample/{name}/{at}", observed_at=at, service=name), SAMPLES)

    def _change(self, service: AutoscaledService, change: Change, now: float) -> None:
        """Submit the replicas of an autoscaled service that begin, and end those that are not wanted any more."""
        for number in change.begin:
            replica = replica_of(service.service, f"{number}.1", now, inf)
            job = job_id(replica.row)
            self._number_of_replica[job] = service, number
            self._expect_replica(job, replica, now)
        for number in change.end:
            job = job_id(replica_of(service.service, f"{number}.1", now, inf).row)
            if job in self.open_replicas:
                replica = self.open_replicas[job]
                row = replace(replica.row, duration_s=now - replica.row.submit_s)
                self.open_replicas[job] = replace(replica, row=row, until_s=now)
                self._cluster.end_by(job, now)
                self._withdraw(job, now)

    def _submit_replica(self, now: float) -> None:
        """Put the next replica on the heap, while anything of the trace is open."""
        replica = None if self._services_are_over else next(self._replicas, None)
        if replica is None:
            return
        job = job_id(replica.row)
        self._next_replica = job, self._expect_replica(job, replica, now)

    def _expect_replica(self, job: str, replica: Replica, now: float) -> int:
        """Put a replica on the heap; the number is what `retract` takes."""
        spec = replace(job_of(replica.row), communicates=False)
        self._cluster.expect(job, inf, None, spec.members, spec, ends_at=replica.until_s)
        self.open_replicas[job] = replica
        return self._push(job, max(now, replica.row.submit_s), spec)

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
