"""Events say what happened, in the past tense. They are the only input of the core.

Every event has an id (the same for the same occurrence, so that duplicates are ignored), observed_at (seconds; monotone
per journal; the only time the core decides by) and, where the source knows it better, occurred_at (for accounting).
`job` is a job id.
"""

from dataclasses import dataclass

from gantree.model.cluster import Cluster, LinkId
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement, PlannedMove
from gantree.model.repairs import RepairState
from gantree.model.replicas import Endpoint
from gantree.model.services import ServiceSpec
from gantree.model.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    id: str
    observed_at: float
    occurred_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObserved(Event):
    """The description of the site was read, at the first start and after each change."""

    cluster: Cluster


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A user submitted a job; control chose its id."""

    job: str
    spec: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnInRequested(Event):
    """An operator requested a burn-in of cordoned nodes (`Job.on_cordoned`), which starts at once or not at all."""

    job: str
    spec: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionTaken(Event):
    """A user submitted jobs with an idempotency key: (job, name) of each, and a digest of the submission.

    It records the key only: each job has its own `JobSubmitted`. arrays: (id, spans of indices) of the arrays. services
    are the names of services that were submitted with them.
    """

    digest: str
    jobs: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    arrays: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    services: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Event):
    """A user requested to cancel a job, or all elements of an array. So it is with the other requests below.

    if_pending: an executor did, of a job that it hands in again otherwise; one that was placed meanwhile goes on.
    """

    job: str
    reason: str = ""
    if_pending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSubmitted(Event):
    """A user submitted a service: a new one, or another description of a live one."""

    service: str
    spec: ServiceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceScaleRequested(Event):
    """A user, or the autoscaler (automatic), requested another number of replicas."""

    service: str
    replicas: int
    reason: str = ""
    automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceScaleObserved(Event):
    """Of a service that its cluster keeps another number of replicas is wanted than before."""

    service: str
    replicas: int
    before: int
    reason: str = ""
    automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequested(Event):
    """A pending or stopping job must not start until it is released.

    reason is what it waits for; "" for a user's request.
    """

    job: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequested(Event):
    """A user released a held job."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRequested(Event):
    """A user requested to stop a job, if it runs, and to hold it until it is released."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequested(Event):
    """A user requested another number of members for an elastic gang."""

    job: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsRequested(Event):
    """An executor set the node restrictions of a pending job: (role, rule); roles without a rule have none.

    reason is the end of a sentence for people. They replace the earlier ones.
    """

    job: str
    bars: tuple[tuple[str, str], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityRequested(Event):
    """A user or operator requested another priority: a class or a number, as in a job file."""

    job: str
    priority: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentRequested(Event):
    """An operator requested moves of gangs that let a pending job start at a placement, if they still gain.

    No moves: the core is to plan them.
    """

    job: str
    placement: Placement | None = None
    moves: tuple[PlannedMove, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFound(Event):
    """The inventory has an attempt of a job that may not be on record.

    placement is what its members hold.
    """

    job: str
    spec: Job
    attempt: int
    placement: Placement


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GangStarted(Event):
    """All processes of all members of an attempt were started. endpoints: where members of a replica listen."""

    job: str
    attempt: int
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReadinessChanged(Event):
    """An attempt of a replica became ready for requests, or is not ready any more."""

    job: str
    attempt: int
    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDrained(Event):
    """An attempt of a draining replica has no request left."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStartFailed(Event):
    """A member could not be started; the cluster stops the others.

    final: it would fail in the same way again, so there is no point in starting it again. check_failed: the check
    before the start named who is at fault, so the job is placed anew at no cost for it.
    """

    job: str
    attempt: int
    reason: str
    final: bool = False
    check_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited(Event):
    """One process exited. exit_code is that of a shell: 128 + signal if a signal killed it.

    life as in `MemberStarted`.
    """

    job: str
    attempt: int
    rank: int
    exit_code: int
    life: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLost(Event):
    """A member was lost without exit codes (its shim was killed, its node is gone).

    rank is its first global rank, if the source knows it; life as in `MemberStarted`.
    """

    job: str
    attempt: int
    role: str
    member: int
    reason: str
    rank: int | None = None
    life: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStarted(Event):
    """A replaced member (its number in the gang) is running; life counts its replacements from 1."""

    job: str
    attempt: int
    member: int
    life: int


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GangEnded(Event):
    """No process of an attempt is left. exit_code: 0 if every rank exited with 0, else the first other code.

    unprompted: every rank had ended before any of them was told to stop, whatever was decided meanwhile.
    gpus_unchanged: GPUs are partitioned as before the attempt; none of its changes was made, or all were undone.
    """

    job: str
    attempt: int
    exit_code: int
    unprompted: bool = False
    gpus_unchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Event):
    """A checkpoint is durable in all shards. request is None for a checkpoint that was not requested."""

    job: str
    attempt: int
    step: int
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Event):
    """A node was lost: nothing may be placed there, and its members are lost."""

    node: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReturned(Event):
    """A lost node is usable again, and empty."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonRequested(Event):
    """An operator cordoned a node: nothing new starts there; running members stay.

    drain: what runs there leaves, too: whoever has a place elsewhere at once, others at deadline_at (None: at once).
    """

    node: str
    reason: str = ""
    drain: bool = False
    deadline_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonRequested(Event):
    """An operator uncordoned a node: gangs that were not stopped yet stay on it.

    forgives: an operator says so, of what is told to be wrong with it too (`HealthObserved`).
    """

    node: str
    forgives: bool = True


NODE_CONDITIONS = "conditions"
"""The source that reports what the conditions of Kubernetes nodes say: a fault, for as long as one of them is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthObserved(Event):
    """A health source reported a fault of a node, or "" once it has been healthy for long enough.

    Members there keep running, but may fail. Reports of different sources are independent. kept: why the node stays in
    use all the same; "": it is taken out. lost_gpus: GPUs that no process can use until a reset, by index; empty: one
    is lost, and the source does not know which; None: none is.
    """

    node: str
    source: str
    reason: str = ""
    kept: str = ""
    lost_gpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkHealthObserved(Event):
    """A source reported the share of its rate, between 0 and 1, that a link carries; 1 once it is whole again.

    load, between 0 and 1, is how much of that others' traffic takes; 0 once it does not. Gangs across it go on. Reports
    of different sources are independent: the lowest health and the highest load count.
    """

    link: LinkId
    source: str
    health: float = 1.0
    reason: str = ""
    load: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSlownessObserved(Event):
    """A rank of an attempt makes each step of its gang longer by this factor; 1 once it does not any more.

    node is where it runs. All ranks go on.
    """

    job: str
    attempt: int
    rank: int
    node: str
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUseObserved(Event):
    """Counters told what running gangs did with their GPUs from since to until, in seconds since 1970."""

    since: float
    until: float
    gangs: tuple[MeasuredUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangIdlenessObserved(Event):
    """Counters told that the GPUs of an attempt have not computed since a moment, in seconds since 1970.

    It is told when that begins, and again when the gang is due to be reclaimed and is idle still. since None: it is
    over, for this reason.
    """

    job: str
    attempt: int
    since: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionRequested(Event):
    """A user requested that a job is not reclaimed as idle before until, in seconds since 1970.

    None: an operator requested that it never is.
    """

    job: str
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRestoreRequested(Event):
    """An operator counts a link as whole, whatever sources reported of it, until one reports something else."""

    link: LinkId


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairObserved(Event):
    """The repair of a node has come so far: step (from 0) of steps, and why it ended, in words.

    sign is the fault that it repairs. Once it has succeeded, the node is used again whatever sources reported before.
    """

    node: str
    state: RepairState
    sign: str
    steps: tuple[str, ...]
    step: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequested(Event):
    """An operator changed labels of a node: (key, value), None to remove one."""

    node: str
    labels: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersHold(Event):
    """A foreign holder holds these resources now, instead of its earlier ones; none: it is gone.

    If the source knows only the number of GPUs, gpus are a guess.
    """

    holder: str
    members: tuple[MemberPlacement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySubmitted(Event):
    """An operator submitted a policy: the text of its file, the name of the file in messages, and the user.

    The turn reads it and hands the event to a scheduler of that policy (`control.turn`).
    """

    text: str
    source: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJobsDue(Event):
    """Ended jobs exceed the limit of the daemon's memory: all but the newest `keep` may be forgotten.

    The same holds for rejected jobs. ended_before: jobs that ended since then (seconds since 1970) stay.
    """

    keep: int
    ended_before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed(Event):
    """The `wake_at` of the last decision passed."""


EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        ClusterObserved, JobSubmitted, BurnInRequested, SubmissionTaken,
        CancelRequested, HoldRequested, ReleaseRequested, DefragmentRequested,
        SuspendRequested, ScaleRequested, BarsRequested, PriorityRequested,
        CordonRequested, UncordonRequested, LabelRequested, HealthObserved, LinkHealthObserved,
        LinkRestoreRequested, RankSlownessObserved, GpuUseObserved, RepairObserved, OthersHold, PolicySubmitted,
        GangIdlenessObserved, ExtensionRequested, ServiceSubmitted, ServiceScaleRequested,
        ServiceScaleObserved, ReplicaReadinessChanged, ReplicaDrained,
        GangFound, GangStarted, GangStartFailed, RankExited, MemberLost, MemberStarted,
        GangEnded, CheckpointSaved, NodeLost, NodeReturned, EndedJobsDue, TimePassed,
    )
}  # fmt: skip
