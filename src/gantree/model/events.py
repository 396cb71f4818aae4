"""Events say what happened, in the past tense. They are the only way anything enters the core.

Every event has an id (the same happening always carries the same id, so that telling it twice is telling it
once), observed_at (seconds; monotone per journal; the only time the core decides by) and, where the source
knows better, occurred_at (for accounts). `job` is a job id as `JobAccepted` gave it.
"""

from dataclasses import dataclass

from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.values import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all events have."""

    id: str
    observed_at: float
    occurred_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObserved(Event):
    """The site's description was read: at the first start, and whenever it changed."""

    cluster: Cluster


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A user handed in a job under an id that the control plane chose."""

    job: str
    spec: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionTaken(Event):
    """A user handed in jobs under a key that may be used again to ask what became of them: (job, name) of each.

    digest stands for what was handed in. Nothing follows from it: the jobs have events of their own.
    """

    digest: str
    jobs: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Event):
    """A user wants a job gone."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequested(Event):
    """A waiting job, or one that is about to leave its place, is not to be started until it is released.

    reason is what it waits for, where that is not a user's word.
    """

    job: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequested(Event):
    """A user releases a job that was held."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRequested(Event):
    """A user wants a job to stop, if it runs, and not to be started until it is released."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequested(Event):
    """A user wants an elastic gang to have so many members from now on."""

    job: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsRequested(Event):
    """Whoever runs the cluster wants a waiting job on nodes as these rules ask: (role, rule), and on any where none is.

    reason says why, as the end of a sentence. They replace those of before.
    """

    job: str
    bars: tuple[tuple[str, str], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityRequested(Event):
    """Somebody wants a job to have another priority: a class or a number, as in a job file."""

    job: str
    priority: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentRequested(Event):
    """An operator wants gangs moved so that a waiting job fits, if the plan still gains."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFound(Event):
    """An attempt runs in the cluster of a job that nobody may have on record; what is known of it is what runs there.

    placement is where it is and what its members hold.
    """

    job: str
    spec: Job
    attempt: int
    placement: Placement


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GangStarted(Event):
    """All processes of all members of an attempt have been started."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStartFailed(Event):
    """Some member could not be started; what had been started is being stopped by the cluster.

    final: it would fail in the same way again, so there is no point in starting it again.
    """

    job: str
    attempt: int
    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited(Event):
    """One process ended. exit_code is as the shell counts: 128 + signal where a signal killed it.

    life as in `MemberStarted`.
    """

    job: str
    attempt: int
    rank: int
    exit_code: int
    life: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLost(Event):
    """A member vanished without leaving exit codes (its shim was killed, its node went away).

    rank is the first global rank that it had, where the source knows that; life as in `MemberStarted`.
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
    """A member that was replaced runs: by its number in the gang, and its life, 1 for its first replacement."""

    job: str
    attempt: int
    member: int
    life: int


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GangEnded(Event):
    """Nothing of an attempt is left anywhere. exit_code: 0 if every rank ended with 0, else the first other.

    unprompted: every rank had ended before any of them was told to stop, whatever was decided meanwhile.
    """

    job: str
    attempt: int
    exit_code: int
    unprompted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Event):
    """A checkpoint is durable, all shards of it. request is None where the job saved of its own accord."""

    job: str
    attempt: int
    step: int
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Event):
    """A node is gone: nothing may be placed there, and what ran there is lost."""

    node: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReturned(Event):
    """A lost node can be used again, and is empty."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonRequested(Event):
    """An operator wants nothing new to start on a node; what runs there stays.

    drain: what runs there leaves, too: whoever has a place elsewhere at once, others at deadline_at (None: at once).
    """

    node: str
    reason: str = ""
    drain: bool = False
    deadline_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonRequested(Event):
    """A node is to be used again; nobody leaves it any more who was not told to.

    forgives: an operator says so, of what is told to be wrong with it too (`HealthObserved`).
    """

    node: str
    forgives: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthObserved(Event):
    """Something that watches a node says what is wrong with it, or, "", that it has been well for long enough.

    What runs there runs on, but may fail. source names who says so; each speaks for itself.
    """

    node: str
    source: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequested(Event):
    """An operator gives a node other labels: (key, value), None for a label that it is not to have."""

    node: str
    labels: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersHold(Event):
    """Somebody whom gantree did not start holds this now, instead of what it held before; nothing: it is gone.

    Where the source knows only how many GPUs it has, gpus are a guess.
    """

    holder: str
    members: tuple[MemberPlacement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySubmitted(Event):
    """A policy is to rule from now on: the text of its file, the file's name in messages, and who handed it in.

    The turn reads it and hands the event to a scheduler of that policy (`control.turn`).
    """

    text: str
    source: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJobsDue(Event):
    """More jobs that have ended are known than are to be: the oldest may go, but for the newest `keep`.

    So may those that were rejected, but for as many. ended_before: none since this moment, in seconds since 1970.
    """

    keep: int
    ended_before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed(Event):
    """The moment came that the last decision asked to be woken at."""


EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        ClusterObserved, JobSubmitted, SubmissionTaken,
        CancelRequested, HoldRequested, ReleaseRequested, DefragmentRequested,
        SuspendRequested, ScaleRequested, BarsRequested, PriorityRequested,
        CordonRequested, UncordonRequested, LabelRequested, HealthObserved, OthersHold, PolicySubmitted,
        GangFound, GangStarted, GangStartFailed, RankExited, MemberLost, MemberStarted,
        GangEnded, CheckpointSaved, NodeLost, NodeReturned, EndedJobsDue, TimePassed,
    )
}  # fmt: skip
