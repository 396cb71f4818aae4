"""A job of a federation as its front keeps it: what was submitted, which cluster has it, and what became of it."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from gantree.model.federation import ONE_REGION, Assignment, FederatedCluster, Regions

Json = dict[str, Any]
REASONS_KEPT = 20


class Stage(StrEnum):
    """Where a job of a federation is.

    choosing: no cluster has it. sending: one was chosen and may have it. placed: one has taken it. ended: for good.
    """

    CHOOSING = "choosing"
    SENDING = "sending"
    PLACED = "placed"
    ENDED = "ended"


@dataclass(slots=True)
class FederatedJob:
    """One job. submission is the body that clusters get, as POST /v1/jobs takes it; user is whose it is. number counts
    its assignments; cluster and lease are of the current one, remote is its id there, came_by the assignment by
    which its cluster says that it came: of a service perhaps an older one. before is the cluster that had it
    before. cancelled: its user wants it to end. moving: its cluster, where it only waits, is to end it, so that another
    one starts it. outcome is the phase in which it ended, reason why. key is the
    caller and the idempotency key of its submission. since: up to this number, assignments were of an earlier
    service of the name, which has ended. regions are those of a service, of which each copy is one of these; region is
    the one where this copy is to be, "" for any in which no other is. reasons are why it is where it is, the newest
    last, each with its moment in seconds since 1970.
    """

    job: str
    name: str
    submission: Json
    user: str = ""
    queue: str = "default"
    kind: str = "job"
    key: str = ""
    data: tuple[tuple[str, float], ...] = ()
    checkpoint: str | None = None
    regions: Regions = ONE_REGION
    region: str = ""
    submitted_at: float = 0.0
    stage: Stage = Stage.CHOOSING
    number: int = 0
    since: int = 0
    cluster: str = ""
    lease: int = 0
    remote: str = ""
    came_by: str = ""
    before: str = ""
    phase: str = "pending"
    cancelled: bool = False
    moving: bool = False
    outcome: str = ""
    ended_at: float | None = None
    reasons: list[tuple[float, str]] = field(default_factory=list)

    @property
    def is_service(self) -> bool:
        """Whether it is a service."""
        return self.kind == "service"

    @property
    def service_there(self) -> str:
        """The name by which the cluster that has a service lists it: of a GangService with its namespace."""
        return self.remote.replace("/", ".", 1)

    @property
    def is_leased(self) -> bool:
        """Whether its processes end with the lease of its cluster."""
        return not self.is_service

    @property
    def is_assigned(self) -> bool:
        """Whether a cluster has it, or may have it."""
        return self.stage in (Stage.SENDING, Stage.PLACED)

    def assignment(self, federation: str) -> Assignment:
        """The current one."""
        return Assignment(federation, self.job, self.number, self.lease)

    def note(self, reason: str, at: float) -> None:
        """Add a reason that is not the newest one again; the oldest are dropped."""
        if self.reasons and self.reasons[-1][1] == reason:
            return
        self.reasons = [*self.reasons, (at, reason)][-REASONS_KEPT:]

    def assign(self, cluster: str, lease: int, reason: str, at: float) -> None:
        """A cluster is chosen."""
        self.number += 1
        self.stage, self.cluster, self.lease = Stage.SENDING, cluster, lease
        self.remote = self.came_by = ""
        self.phase = "pending"
        self.note(reason, at)

    def take(self, remote: str) -> None:
        """The cluster has taken it under this id."""
        self.stage, self.remote = Stage.PLACED, remote

    def take_back(self, cluster: str, remote: str, reason: str, at: float) -> None:
        """The cluster that had it before has it still, and none other was chosen."""
        self.stage, self.cluster, self.remote = Stage.PLACED, cluster, remote
        self.note(reason, at)

    def withdraw(self, reason: str, at: float) -> None:
        """No cluster has it any more; one that was to end has ended."""
        self.before, self.cluster, self.remote, self.moving = self.cluster, "", "", False
        self.stage, self.phase = Stage.CHOOSING, "pending"
        self.note(reason, at)
        if self.cancelled:
            self.end("cancelled", "", at)

    def end(self, outcome: str, reason: str, at: float) -> None:
        """It has ended."""
        self.stage, self.outcome, self.phase, self.ended_at = Stage.ENDED, outcome, outcome, at
        if reason:
            self.note(reason, at)

    def shares_checkpoint(self, first: FederatedCluster, second: FederatedCluster) -> bool:
        """Whether its checkpoints are the same files in both clusters."""
        if self.checkpoint is None:
            return False
        path = PurePosixPath(self.checkpoint)
        shared = set(first.storage) & set(second.storage)
        return any(path.is_relative_to(each) for each in shared)

    def to_json(self) -> Json:
        """Plain data, for the store."""
        return asdict(self)


def job_from_json(data: Json) -> FederatedJob:
    """The job that `to_json` wrote."""
    parts = {
        "data": tuple((name, GiB) for name, GiB in data["data"]),
        "stage": Stage(data["stage"]),
        "regions": _regions_from_json(data.get("regions")),
        "reasons": [(at, reason) for at, reason in data["reasons"]],
    }
    return FederatedJob(**(data | parts))


def _regions_from_json(data: Json | None) -> Regions:
    """One, in the store of an older version."""
    return ONE_REGION if data is None else Regions(data["count"], tuple(data["names"]))
