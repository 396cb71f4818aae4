"""Facts are what was decided. The ledger changes only by applying them, one after the other.

Facts carry names, never indices, and are kept for ever: a fact type may gain fields with defaults, and when its
meaning changes its VERSION grows and an upcaster is added to `UPCASTERS`. OWNER says who is the authority after
a restart: "journal" (folded from here) or "cluster" (checked against what really runs).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.phases import Phase, StopCause
from gantree.model.placements import Placement

Owner = Literal["journal", "cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What all facts have: when it was decided, in seconds of `Event.observed_at`."""

    VERSION: ClassVar[int] = 1
    OWNER: ClassVar[Owner] = "journal"
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricDefined(Fact):
    """From now on the cluster looks like this; what runs is carried over by name."""

    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccepted(Fact):
    """A job is in the queue. seq is its place in arrival order; priority is resolved by the policy."""

    job: str
    spec: Job
    priority: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRejected(Fact):
    """A submission was not taken into the queue, and why."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlaced(Fact):
    """An attempt got its place and holds it until `AttemptEnded`."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRunning(Fact):
    """All processes of the attempt run."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomClaimed(Fact):
    """A place is held for a gang while the attempts named in victims (job ids) leave it."""

    job: str
    placement: Placement
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDropped(Fact):
    """The room held for a gang is no longer held."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPreempted(Fact):
    """An attempt will be stopped for the sake of another job."""

    job: str
    attempt: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequested(Fact):
    """The ranks were asked to save; at deadline_at the attempt is stopped with or without an answer."""

    job: str
    attempt: int
    request: str
    deadline_at: float
    cause: StopCause


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecorded(Fact):
    """A checkpoint of this attempt is durable."""

    job: str
    attempt: int
    step: int
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDecided(Fact):
    """The attempt is told to stop: SIGTERM now, SIGKILL after grace_s. reason is the cause in words, if known."""

    job: str
    attempt: int
    cause: StopCause
    grace_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(Fact):
    """Nothing of the attempt is left; its place is free again. gpu_s_lost is work that must be done again."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    exit_code: int
    gpu_s_lost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequeued(Fact):
    """The job waits again, not to be started before not_before."""

    job: str
    cause: StopCause
    not_before: float
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(Fact):
    """The job is over: succeeded, failed, cancelled or timed out."""

    job: str
    outcome: Phase
    exit_code: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMarked(Fact):
    """A node may or may not be used from now on."""

    OWNER: ClassVar[Owner] = "cluster"
    node: str
    usable: bool
    reason: str = ""


FACTS: dict[str, type[Fact]] = {
    kind.__name__: kind
    for kind in (
        FabricDefined, JobAccepted, JobRejected, GangPlaced, GangRunning, RoomClaimed, ClaimDropped, GangPreempted,
        CheckpointRequested, CheckpointRecorded, StopDecided, AttemptEnded, JobRequeued, JobEnded, NodeMarked,
    )
}  # fmt: skip

UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""(kind, old version) -> plain data of that version made into plain data of the next."""
