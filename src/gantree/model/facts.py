"""Facts record decisions. The ledger changes only by applying facts, in order.

Facts hold names, never indices, and are stored permanently. A fact type may gain fields with defaults; if its meaning
changes, its VERSION is increased and an upcaster is added (`model.fact_kinds`). OWNER is the authority after a restart:
"journal" (facts are folded) or "cluster" (facts are reconciled with what runs).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gantree.model.cluster import Cluster
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.jobs import Job
from gantree.model.phases import Phase, StopCause
from gantree.model.placements import Domain, MemberPlacement, Placement
from gantree.model.replicas import Endpoint
from gantree.model.values import quick

Owner = Literal["journal", "cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Base of all facts: the time of the decision, in seconds of `Event.observed_at`."""

    VERSION: ClassVar[int] = 1
    OWNER: ClassVar[Owner] = "journal"
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricDefined(Fact):
    """The cluster has this description from now on; running gangs are carried over by name."""

    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomOfOthers(Fact):
    """A foreign holder holds exactly these resources on these nodes; none: it is gone."""

    OWNER: ClassVar[Owner] = "cluster"
    holder: str
    members: tuple[MemberPlacement, ...]


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccepted(Fact):
    """A job was accepted. seq is its place in order of arrival; priority is its number under the policy.

    array: the array of which it is an element, that counted as one until now; "" if none.
    """

    job: str
    spec: Job
    priority: int
    seq: int
    array: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayAccepted(Fact):
    """A job array was accepted. Its elements have the places seq, seq + 1, ... in order of arrival.

    An element that may be started soon, or that comes to differ from the others, is split from the array: it follows as
    a `JobAccepted`.
    """

    array: str
    spec: Job
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayHeld(Fact):
    """The unsplit elements of an array are held until it is released."""

    array: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReleased(Fact):
    """The unsplit elements of an array are not held any more."""

    array: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReprioritised(Fact):
    """The unsplit elements of an array have this priority, a class or a number."""

    array: str
    asked: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayEnded(Fact):
    """The unsplit elements of an array will never run: cancelled or failed."""

    array: str
    outcome: Phase
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRejected(Fact):
    """A submission was rejected, and why."""

    job: str
    reason: str


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlaced(Fact):
    """An attempt was placed; it holds the placement until `AttemptEnded`. at_home: in a cell of its queue.

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
    """All processes of the attempt are running. endpoints: where members of a replica listen."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomClaimed(Fact):
    """A placement is held for a gang while the attempts of victims (job ids) stop.

    at_home: it is in a cell of the gang's queue. preempts: gangs are stopped for it by priority or order, which counts
    towards the back-off of its job.
    """

    job: str
    placement: Placement
    victims: tuple[str, ...]
    at_home: bool = False
    preempts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDropped(Fact):
    """A claim was dropped: its room is not held any more."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPreempted(Fact):
    """An attempt will be stopped for another job. cause: "priority", "order" or "reclaim"."""

    job: str
    attempt: int
    by: str
    cause: str = "priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMoving(Fact):
    """An attempt will be stopped and restarted at another placement, which is held for it.

    cause: RESIZED (elastic: it goes on with other members) or MOVED (defragmentation, or, at_home, to a cell of its
    queue). by is the job that gains; "" if it is the gang itself. flees is the fault of its node, if that is the
    reason.
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
    """A guest gang became a home gang in place: a cell of its queue was bound to its domain."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld(Fact):
    """The job is held until it is released. reason: what it waits for; "" for a user's request."""

    job: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(Fact):
    """The job is not held any more."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityChanged(Fact):
    """The number of the job's priority changed: a boost began or ended."""

    job: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReprioritised(Fact):
    """An operator or user changed the job's priority: as requested, and as a number."""

    job: str
    asked: str | int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScaled(Fact):
    """A user scaled the elastic gang: it counts as submitted with so many members, and does not grow further."""

    job: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBarred(Fact):
    """The pending job has these node restrictions: (role, rule). reason is for people."""

    job: str
    bars: tuple[tuple[str, str], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationMade(Fact):
    """A pending gang is reserved this placement from starts_at on; replaces its earlier reservation.

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
    """A reservation ended: the gang started, or the fact that is its cause."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBound(Fact):
    """A cell of a queue was bound to this domain; number counts the queue's cells of that tier."""

    queue: str
    tier: str
    number: int
    domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReleased(Fact):
    """A cell of a queue was released from its domain."""

    queue: str
    tier: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSuspended(Fact):
    """The attempt is suspended in place: its time slice on a shared GPU ended."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangResumed(Fact):
    """The attempt was resumed for a time slice, until turn_ends_at if others wait."""

    job: str
    attempt: int
    turn_ends_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMissed(Fact):
    """A member (its number in the gang) was lost; the others keep running until deadline_at, by which it is replaced.

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
    """A lost member was placed again; life counts its replacements, domain is the gang's from now on."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    member: int
    life: int
    place: MemberPlacement
    domain: Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberBack(Fact):
    """A lost member is running again."""

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    member: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSlownessNoted(Fact):
    """A rank on a node makes each step of its gang longer by a factor; 1: no more. It replaces what was noted."""

    job: str
    attempt: int
    rank: int
    node: str
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequested(Fact):
    """A checkpoint was requested; at deadline_at the attempt is stopped, with or without an answer."""

    job: str
    attempt: int
    request: str
    deadline_at: float
    cause: StopCause


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecorded(Fact):
    """A checkpoint of this attempt is durable in all shards."""

    job: str
    attempt: int
    step: int
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUseNoted(Fact):
    """What gangs did with their GPUs from since to until, never more than the time that they ran and was not noted."""

    since: float
    until: float
    gangs: tuple[MeasuredUse, ...]

    def spans_of(self, used: MeasuredUse) -> tuple[tuple[float, float], ...]:
        """When a gang of it ran, of the time that is noted: (from, to), in seconds of `Event.observed_at`."""
        since = self.since
        if not used.ran:
            return ((since, self.until),) if since < self.until else ()
        return tuple((since + after_s, since + after_s + span_s) for after_s, span_s in used.ran)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteeKept(Fact):
    """A queue that lends by use keeps these amounts of its guarantee for itself from now on, and lends the rest.

    keeps: (resource, amount). begins: what it uses is watched from now on.
    """

    queue: str
    keeps: tuple[tuple[str, float], ...]
    begins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GangWarned(Fact):
    """The attempt is sent the warning signal of its job, because its time limit ends at ends_at."""

    job: str
    attempt: int
    signal: str
    ends_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDecided(Fact):
    """The attempt is stopped: SIGTERM now, SIGKILL after grace_s. reason is the cause for people, if known."""

    job: str
    attempt: int
    cause: StopCause
    grace_s: float
    reason: str = ""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(Fact):
    """The attempt ended: no process is left, and its resources are free.

    gpu_s_lost are the GPU-seconds of work that must be redone, on whole GPUs; lost_s the seconds in which it was done.
    gpus_unchanged: the GPU changes of its placement were not made, or were undone.
    """

    OWNER: ClassVar[Owner] = "cluster"
    job: str
    attempt: int
    exit_code: int
    gpu_s_lost: float = 0.0
    lost_s: float = 0.0
    gpus_unchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequeued(Fact):
    """The job is pending again, and may not start before not_before."""

    VERSION: ClassVar[int] = 2
    job: str
    cause: StopCause
    not_before: float
    failures: int


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(Fact):
    """The job ended: succeeded, failed, cancelled or timed out."""

    job: str
    outcome: Phase
    exit_code: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAdopted(Fact):
    """A version of the policy is in force; number counts from 1, text is the file as submitted."""

    number: int
    text: str
    source: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsForgotten(Fact):
    """Ended and rejected jobs, and arrays that are over, were forgotten: they leave the ledger.

    Their ids are not used again.
    """

    jobs: tuple[str, ...]
    rejected: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
