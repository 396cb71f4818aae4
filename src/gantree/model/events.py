"""Events say what happened, in the past tense. They are the only way anything enters the core.

Every event has an id (the same happening always carries the same id, so that telling it twice is telling it
once), observed_at (seconds; monotone per journal; the only time the core decides by) and, where the source
knows better, occurred_at (for accounts). `job` is a job id as `JobAccepted` gave it.
"""

from dataclasses import dataclass

from gantree.model.cluster import Cluster
from gantree.model.jobs import Job


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A user handed in a job under an id that the control plane chose."""

    job: str
    spec: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Event):
    """A user wants a job gone."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequested(Event):
    """A user wants a waiting job not to be started until it is released."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequested(Event):
    """A user releases a job that was held."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentRequested(Event):
    """An operator wants gangs moved so that a waiting job fits, if the plan still gains."""

    job: str


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
    """One process ended. exit_code is as the shell counts: 128 + signal where a signal killed it."""

    job: str
    attempt: int
    rank: int
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLost(Event):
    """A member vanished without leaving exit codes (its shim was killed, its node went away)."""

    job: str
    attempt: int
    role: str
    member: int
    reason: str


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
class TimePassed(Event):
    """The moment came that the last decision asked to be woken at."""


EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        ClusterObserved, JobSubmitted, CancelRequested, HoldRequested, ReleaseRequested, DefragmentRequested,
        GangStarted, GangStartFailed, RankExited, MemberLost,
        GangEnded, CheckpointSaved, NodeLost, NodeReturned, TimePassed,
    )
}  # fmt: skip
