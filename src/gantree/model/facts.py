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
from gantree.model.placements import Domain, MemberPlacement, Placement
from gantree.model.values import quick

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
class RoomOfOthers(Fact):
    """Somebody whom gantree did not start is known to hold this, and nothing else; nothing: it is gone."""

    OWNER: ClassVar[Owner] = "cluster"
    holder: str
    members: tuple[MemberPlacement, ...]


@quick
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


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlaced(Fact):
    """An attempt got its place and holds it until `AttemptEnded`. at_home: in a cell of its queue.

    found: it runs there already, started by somebody of whom there is no record; attempts may be before it.
    """

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    placement: Placement
    at_home: bool = False
    found: bool = False


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GangRunning(Fact):
    """All processes of the attempt run."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomClaimed(Fact):
    """A place is held for a gang while the attempts named in victims (job ids) leave it.

    at_home: it is in a cell of the gang's queue.
    """

    job: str
    placement: Placement
    victims: tuple[str, ...]
    at_home: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDropped(Fact):
    """The room held for a gang is no longer held."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPreempted(Fact):
    """An attempt will be stopped for the sake of another job. cause: "priority", "order" or "reclaim"."""

    job: str
    attempt: int
    by: str
    cause: str = "priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMoving(Fact):
    """An attempt will be stopped and started again at a place of its own, which is held for it.

    cause: RESIZED (elastic: it goes on with other members) or MOVED (defragmentation, or, at_home, to a cell of its
    queue). by is the job for whose sake it happens; "" for its own. flees: what is wrong where it is, if that is why.
    """

    job: str
    attempt: int
    placement: Placement
    cause: StopCause
    by: str = ""
    at_home: bool = False
    flees: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangAtHome(Fact):
    """A gang that ran as a guest is in a cell of its queue where it stands: the cell was bound around it."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld(Fact):
    """The job is not started until it is released. reason: what it waits for, "" for a user's word."""

    job: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(Fact):
    """The job waits for nothing but its turn again."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityChanged(Fact):
    """The job's number from now on: a boost began or ended."""

    job: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReprioritised(Fact):
    """The job was given another priority by hand: as it was asked for, and the number that it means now."""

    job: str
    asked: str | int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScaled(Fact):
    """From now on the elastic gang is as if it were written with so many members, and grows no further."""

    job: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBarred(Fact):
    """From now on members of the waiting job go to nodes as these rules ask: (role, rule). reason: why, in words."""

    job: str
    bars: tuple[tuple[str, str], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationMade(Fact):
    """A gang that waits will start at starts_at at this place; replaces an earlier reservation of it.

    promised: it rests on enforced time limits alone; else on learned run times, and is an estimate. waits_for are the
    jobs that must end first. slips: how often its moment came and it could not start.
    """

    job: str
    starts_at: float
    promised: bool
    placement: Placement
    waits_for: tuple[str, ...]
    slips: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationDropped(Fact):
    """A reservation is no more, and why: it started, or a cause that is a fact itself."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBound(Fact):
    """One of a queue's cells is at this domain from now on; number counts the queue's cells of that tier."""

    queue: str
    tier: str
    number: int
    domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReleased(Fact):
    """A queue's cell is nowhere again."""

    queue: str
    tier: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSuspended(Fact):
    """The attempt keeps its place and computes nothing: its turn on a shared GPU is over."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangResumed(Fact):
    """The attempt computes again: its turn has come, until turn_ends_at if others wait for theirs."""

    job: str
    attempt: int
    turn_ends_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMissed(Fact):
    """A member, by its number in the gang, is lost, and the others stay: until deadline_at, in which it is replaced.

    blamed: it counts as a failure of the job.
    """

    job: str
    attempt: int
    member: int
    deadline_at: float
    reason: str = ""
    blamed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReplaced(Fact):
    """A member that is missing goes on at this place, in its life of this number; domain is the gang's from now on."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    member: int
    life: int
    place: MemberPlacement
    domain: Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberBack(Fact):
    """A member that was missing runs again."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    member: int


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
class GangWarned(Fact):
    """The attempt gets the signal that its job wished for, because its time limit ends at ends_at."""

    job: str
    attempt: int
    signal: str
    ends_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDecided(Fact):
    """The attempt is told to stop: SIGTERM now, SIGKILL after grace_s. reason is the cause in words, if known."""

    job: str
    attempt: int
    cause: StopCause
    grace_s: float
    reason: str = ""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(Fact):
    """Nothing of the attempt is left; its place is free again.

    gpu_s_lost is work that must be done again, on GPUs that it held whole; lost_s are the seconds in which it was done.
    """

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    exit_code: int
    gpu_s_lost: float = 0.0
    lost_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequeued(Fact):
    """The job waits again, not to be started before not_before.

    cut_short counts its attempts, the last in a row, that were preempted sooner than a new start takes and in vain so
    far; cut_short_for are the jobs for which they were.
    """

    job: str
    cause: StopCause
    not_before: float
    failures: int
    cut_short: int = 0
    cut_short_for: tuple[str, ...] = ()


@quick
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCordoned(Fact):
    """Nothing new starts on a node from now on; replaces what was said of it before.

    drain: gangs leave it; those without a place elsewhere at deadline_at, None: at once.
    """

    node: str
    reason: str = ""
    drain: bool = False
    deadline_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUncordoned(Fact):
    """A node that was cordoned may be used again."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealthNoted(Fact):
    """What a source says is wrong with a node, instead of what it said before; "": nothing. Nothing new starts there.

    forgiven: an operator lets it be used all the same, until the source says something else.
    """

    node: str
    source: str
    reason: str = ""
    forgiven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabelled(Fact):
    """A node has this label from now on, whatever the cluster file says; None: it has none of that key."""

    node: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAdopted(Fact):
    """A version of the policy rules from now on; number counts from 1, text is the file as it was handed in."""

    number: int
    text: str
    source: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsForgotten(Fact):
    """Jobs that have ended, and some that were rejected, are history: nothing is decided or told of them any more.

    Their ids stay taken.
    """

    jobs: tuple[str, ...]
    rejected: tuple[str, ...] = ()


FACTS: dict[str, type[Fact]] = {
    kind.__name__: kind
    for kind in (
        FabricDefined, JobAccepted, JobRejected, GangPlaced, GangRunning, RoomClaimed, ClaimDropped, GangPreempted,
        CheckpointRequested, CheckpointRecorded, StopDecided, AttemptEnded, JobRequeued, JobEnded, NodeMarked,
        GangMoving, GangAtHome, JobHeld, JobReleased, PriorityChanged, ReservationMade, ReservationDropped,
        CellBound, CellReleased, GangSuspended, GangResumed,
        JobReprioritised, JobScaled, JobBarred, NodeCordoned, NodeUncordoned, NodeLabelled, PolicyAdopted, GangWarned,
        JobsForgotten, RoomOfOthers, NodeHealthNoted,
        MemberMissed, MemberReplaced, MemberBack,
    )
}  # fmt: skip

UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""(kind, old version) -> plain data of that version made into plain data of the next."""
