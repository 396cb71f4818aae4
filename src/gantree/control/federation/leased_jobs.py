"""Keeps the lease on disk, and stops or releases the jobs that are bound to it.

Once half of the lease has passed without a renewal, leased jobs are suspended: each saves if it can, stops, and is
held. Jobs that wait are held. The next renewal releases what was suspended so. What still runs at the end of the lease
is killed by its shims, which read the file of the lease themselves (`executors.local.shim.lease`): also while no daemon
runs here.

On Kubernetes nobody ends pods for a daemon that does not run, and the cluster says so (`EnforcedBy`): its jobs are not
started elsewhere by the time alone. So what runs there goes on without a lease, and nothing starts.

Services are not bound to the lease: a replica more does no harm, one less would.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gantree.control.federation.lease import Lease, check_assignment, renewed
from gantree.control.requests.job_commands import FINAL
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.executors.local.shim.lease import FILE, boottime_s
from gantree.executors.local.shim.shim import boot_id, read_json, write_json
from gantree.model.events import Event, ReleaseRequested, SuspendRequested
from gantree.model.federation import Assignment, EnforcedBy, Renewal, Stamp, assignment_of
from gantree.model.phases import Phase

WITHOUT_LEASE_S = 60.0
"""So long after its start a daemon that knows of no lease lets leased jobs run: a front will have told it of one."""
LOOK_EVERY_S = 1.0
"""While the lease runs out, how often jobs are looked for that somebody has released meanwhile."""


def boot_stamp() -> Stamp:
    """Now, on a clock of this boot that cannot be set."""
    return Stamp(boot_id(), boottime_s())


class LeasedJobs:
    """The lease of this cluster, in a file of state_dir; now gives a stamp. The controller's thread has it."""

    def __init__(
        self,
        state_dir: Path,
        enforced_by: EnforcedBy = EnforcedBy.MEMBERS,
        now: Callable[[], Stamp] = boot_stamp,
    ) -> None:
        self._path = str(state_dir / FILE)
        self.enforced_by = enforced_by
        self._now = now
        self.lease = _lease_in(read_json(self._path))
        self._began_at_s = now().at_s
        self._looked_at_s = float("-inf")
        self._events = 0

    def renew(self, asked: Renewal) -> dict[str, Any]:
        """Renew the lease; what to answer. Raises Conflict where it must not be."""
        now = self._now()
        before = self.lease
        self._keep(renewed(before, asked, now))
        assert self.lease is not None
        granted = asked.stamp is not None and self.lease.is_valid(now)
        return {
            "federation": self.lease.federation,
            "number": self.lease.number,
            "granted": granted and self.lease.number == asked.number,
            "remaining_s": self.lease.remaining_s(now),
            "stamp": asdict(now),
            "enforced_by": self.enforced_by.value,
        }

    def holds(self) -> bool:
        """Whether leased jobs may start now."""
        return self.lease is not None and not self.lease.is_running_out(self._now())

    def check(self, assignment: Assignment) -> None:
        """Raise Conflict unless a job may be taken now as this assignment."""
        check_assignment(self.lease, assignment.federation, assignment.lease, self._now())

    def events(self, ledger: Ledger, observed_at: float, epoch: int) -> list[Event]:
        """What follows for jobs from the time that has passed, to be made durable at once."""
        now = self._now()
        is_by_daemon = self.enforced_by is EnforcedBy.DAEMON
        if (
            self.lease is None
            and now.at_s - self._began_at_s < WITHOUT_LEASE_S
            and not is_by_daemon
        ):
            return []
        if self.lease is not None and not self.lease.is_running_out(now):
            return list(self._releases(ledger, observed_at, epoch)) if self.lease.suspended else []
        if now.at_s - self._looked_at_s < LOOK_EVERY_S:
            return []
        self._looked_at_s = now.at_s
        stopped = [
            state.job
            for state in ledger.jobs.values()
            if _must_stop(state) and (state.phase is Phase.PENDING or not is_by_daemon)
        ]
        if stopped:
            lease = self.lease or Lease(_federation_of(ledger, stopped[0]), 0, 0.0)
            suspended = tuple(dict.fromkeys((*lease.suspended, *stopped)))
            self._keep(replace(lease, suspended=suspended))
        return [
            SuspendRequested(id=self._new_id(job, epoch), observed_at=observed_at, job=job)
            for job in stopped
        ]

    def _releases(self, ledger: Ledger, observed_at: float, epoch: int) -> Iterator[Event]:
        assert self.lease is not None
        suspended = self.lease.suspended
        self._keep(replace(self.lease, suspended=()))
        for job in suspended:
            state = ledger.find(job)
            if state is not None and state.ended_at is None and state.held:
                event_id = self._new_id(job, epoch)
                yield ReleaseRequested(id=event_id, observed_at=observed_at, job=job)

    def _keep(self, lease: Lease) -> None:
        """Make it durable, and that of the next look. Raises OSError."""
        if lease != self.lease:
            write_json(self._path, asdict(lease))
            self.lease = lease

    def _new_id(self, job: str, epoch: int) -> str:
        self._events += 1
        return f"{job}/lease/{epoch}.{self._events}"


def _must_stop(state: JobState) -> bool:
    if state.ended_at is not None or state.held or not state.spec.is_leased:
        return False
    return not (state.leaving and state.stop_cause in FINAL)


def _federation_of(ledger: Ledger, job: str) -> str:
    return assignment_of(ledger.jobs[job].spec.assignment).federation


def _lease_in(record: Any) -> Lease | None:
    if record is None:
        return None
    parts = {"until": Stamp(**record["until"]), "suspended": tuple(record["suspended"])}
    return Lease(**(record | parts))


def rows_of_federation(ledger: Ledger, federation: str) -> list[dict[str, Any]]:
    """The jobs and services of a federation that have not ended; replicas belong to their service."""
    rows = [
        {
            "job": state.job,
            "assignment": state.spec.assignment,
            "phase": state.phase.value,
            "attempt": state.attempt,
            "held": state.held,
            "service": False,
        }
        for state in ledger.jobs.values()
        if state.ended_at is None
        and state.spec.is_leased
        and assignment_of(state.spec.assignment).federation == federation
    ]
    for service in ledger.services.values():
        assignment = service.spec.replica.assignment
        if service.is_live and assignment and assignment_of(assignment).federation == federation:
            phase = "stopping" if service.is_ending else "running"
            rows.append(
                {
                    "job": service.service,
                    "assignment": assignment,
                    "phase": phase,
                    "attempt": service.revision,
                    "held": False,
                    "service": True,
                }
            )
    return rows
