"""A cluster of a federation in virtual time: its lease is the production code, its jobs are a small model.

The daemon and the machine are two things: a daemon that is killed leaves its processes running, and what enforces the
lease then is what enforces it in a real cluster, the shims. True time is what the history is written in; the cluster
reads its own clock, which starts anywhere, runs at its own rate, and starts anew with each boot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gantree.control.federation.lease import Lease, check_assignment, renewed
from gantree.federation.calls import Call, CallKind
from gantree.model.errors import BadInput, Conflict, NotFound, Stale
from gantree.model.federation import EnforcedBy, Stamp

Json = dict[str, Any]


@dataclass(slots=True)
class Attempt:
    """Processes of an assignment from start to end (None: they run), in true time."""

    job: str
    number: int
    cluster: str
    start: float
    end: float | None = None


@dataclass(slots=True)
class SimulatedJob:
    """A job as the cluster has it."""

    remote: str
    assignment: str
    number: int
    job: str
    needs_s: float
    phase: str = "pending"
    held: bool = False
    attempt: Attempt | None = None
    stops_at: float | None = None
    cancelled: bool = False
    is_service: bool = False
    service: str = ""
    attempts: int = 0

    @property
    def version(self) -> str:
        """Another one with each change."""
        return f"{self.phase} {self.held} {self.attempts}"


@dataclass
class SimulatedCluster:
    """One cluster. slots: so many gangs fit. history is shared by all clusters.

    by: who ends jobs with the lease; a Kubernetes cluster, whose daemon does, only starts nothing without it.
    """

    name: str
    random: Random
    history: list[Attempt]
    by: EnforcedBy = EnforcedBy.MEMBERS
    slots: int = 2
    rate: float = 1.0
    refuses: bool = False
    boot: int = 0
    booted_at: float = 0.0
    is_up: bool = True
    lease: Lease | None = None
    jobs: dict[str, SimulatedJob] = field(default_factory=dict)
    remote_of_key: dict[str, str] = field(default_factory=dict)

    def stamp(self, now: float) -> Stamp:
        """This machine's clock at a true time."""
        return Stamp(f"{self.name}.{self.boot}", (now - self.booted_at) * self.rate)

    # The daemon.

    def handle(self, call: Call, now: float) -> Json:
        """Answer a call. Raises as a daemon does."""
        handler = {
            CallKind.LEASE: self._renew,
            CallKind.FORECAST: self._forecast,
            CallKind.SUBMIT: self._submit,
            CallKind.CANCEL: self._cancel,
            CallKind.LOOK: self._look,
        }[call.kind]
        return handler(call, now)

    def _renew(self, call: Call, now: float) -> Json:
        assert call.renewal is not None
        stamp = self.stamp(now)
        self.lease = renewed(self.lease, call.renewal, stamp)
        granted = call.renewal.stamp is not None and self.lease.is_valid(stamp)
        rows = [
            {
                "job": each.remote,
                "assignment": each.assignment,
                "phase": each.phase,
                "held": each.held,
                "attempt": each.attempts,
                "service": each.is_service,
            }
            for each in self.jobs.values()
            if each.phase not in {"succeeded", "cancelled"}
        ]
        return {
            "granted": granted and self.lease.number == call.renewal.number,
            "stamp": {"boot": stamp.boot, "at_s": stamp.at_s},
            "enforced_by": self.by.value,
            "jobs": rows,
        }

    def _forecast(self, call: Call, now: float) -> Json:
        if self.refuses:
            raise BadInput("no such queue")
        free = self._running() < self.slots
        start = {"starts_at": now + (0.0 if free else self.random.uniform(1, 300))}
        forecast = {"refused": None, "start": start, "cost_USD": None, "now": free}
        return {"asked_at": now, "forecast": forecast}

    def _submit(self, call: Call, now: float) -> Json:
        assert call.assignment is not None
        told = call.assignment
        check_assignment(self.lease, told.federation, told.lease, self.stamp(now))
        key = str(told)
        if key not in self.remote_of_key:
            if self.refuses:
                raise BadInput("no such queue")
            remote = f"{told.job}-{self.name}-{len(self.jobs)}"
            job = SimulatedJob(remote, key, told.number, told.job, call.body["needs_s"])
            job.is_service, job.service = call.is_service, call.body["service"]
            self._add(job, now)
        return {"jobs": [{"job": self.remote_of_key[key]}]}

    def _add(self, job: SimulatedJob, now: float) -> None:
        """Take a job; a live service of its name is updated, also as another copy of the front."""
        live = [
            each
            for each in self.jobs.values()
            if each.is_service and each.service == job.service and each.phase != "cancelled"
        ]
        if job.is_service and live and not live[0].cancelled:
            before, job = job, live[0]
            job.assignment, job.number, job.job = before.assignment, before.number, before.job
            if job.attempt is not None:
                job.attempt.end = now
                job.attempt = Attempt(job.job, job.number, self.name, now)
                self.history.append(job.attempt)
        self.jobs[job.remote] = job
        self.remote_of_key[job.assignment] = job.remote

    def _cancel(self, call: Call, now: float) -> Json:
        job = self._job(call.remote)
        if job.phase in ("succeeded", "cancelled"):
            raise Conflict("it has ended")
        if job.is_service and call.came_by != job.assignment:
            raise Conflict("it was handed in anew")
        if call.version not in ("", job.version):
            raise Stale("it has changed")
        job.cancelled = True
        self._stop(job, now)
        return {"job": job.remote}

    def _look(self, call: Call, now: float) -> Json:
        job = self._job(call.remote)
        return {"phase": job.phase, "held": job.held, "version": job.version}

    def _job(self, remote: str) -> SimulatedJob:
        if remote not in self.jobs:
            raise NotFound(remote)
        return self.jobs[remote]

    def _running(self) -> int:
        """How many gangs take a slot: services have room of their own."""
        return sum(each.attempt is not None and not each.is_service for each in self.jobs.values())

    def _stop(self, job: SimulatedJob, now: float) -> None:
        """Its processes save and end within a few seconds."""
        if job.attempt is None:
            job.phase = "cancelled" if job.cancelled else "pending"
        elif job.stops_at is None:
            job.stops_at = now + self.random.uniform(0.0, 8.0)

    def tick(self, now: float) -> None:
        """What happens by the time alone."""
        self._shims(now)
        if self.is_up:
            self._daemon(now)

    def _daemon(self, now: float) -> None:
        """Follow the lease, see what has ended, start what waits."""
        is_running_out = self._is_running_out(now)
        for job in self.jobs.values():
            may_hold = not job.is_service and not job.held and job.phase in ("pending", "running")
            if is_running_out and may_hold and (self._ends_jobs or job.phase == "pending"):
                job.held = True
                self._stop(job, now)
            elif not is_running_out and job.held:
                job.held = False
            if job.attempt is None and job.phase == "running":  # ended, and nobody had seen it
                job.phase = "cancelled" if job.cancelled else "pending"
            has_room = job.is_service or self._running() < self.slots
            if job.phase == "pending" and not job.held and has_room:
                self._start(job, now)

    def _start(self, job: SimulatedJob, now: float) -> None:
        """A shim starts nothing leased without a lease that holds."""
        if job.is_service or not self._lease_is_over(now):
            job.attempt = Attempt(job.job, job.number, self.name, now)
            job.phase, job.stops_at, job.attempts = "running", None, job.attempts + 1
            self.history.append(job.attempt)

    # The machine.

    def _shims(self, now: float) -> None:
        """End processes that are done, told to stop, or whose lease is over."""
        for job in self.jobs.values():
            attempt = job.attempt
            if attempt is None:
                continue
            if now - attempt.start >= job.needs_s:
                job.phase = "succeeded"
            elif job.stops_at is not None and now >= job.stops_at:
                job.phase = "cancelled" if job.cancelled else "pending"
            elif self._ends_jobs and not job.is_service and self._lease_is_over(now):
                job.phase = "running"
            else:
                continue
            attempt.end, job.attempt = now, None

    def _is_running_out(self, now: float) -> bool:
        return self.lease is None or self.lease.is_running_out(self.stamp(now))

    @property
    def _ends_jobs(self) -> bool:
        return self.by is EnforcedBy.MEMBERS

    def switch_off(self, now: float) -> None:
        """Its machines are off, with all that ran."""
        self.reboot(now)
        self.is_up = False

    def _lease_is_over(self, now: float) -> bool:
        return self.lease is None or not self.lease.is_valid(self.stamp(now))

    def reboot(self, now: float) -> None:
        """Everything on the machine ends; the disk stays."""
        for job in self.jobs.values():
            if job.attempt is not None:
                job.attempt.end, job.attempt = now, None
        self.boot, self.booted_at = self.boot + 1, now - self.random.uniform(0, 100)

    def release_by_hand(self, now: float) -> None:
        """Somebody releases what is held here."""
        for job in self.jobs.values():
            job.held = False


Answer = Mapping[str, Any]
