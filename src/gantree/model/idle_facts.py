"""Facts about gangs whose GPUs do not compute: idle, warned, reclaimed; and about the lease of a job."""

from dataclasses import dataclass

from gantree.model.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class GangIdlenessNoted(Fact):
    """The GPUs of the attempt have not computed since a moment; since None: that is over, for this reason."""

    job: str
    attempt: int
    since: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangIdleWarned(Fact):
    """The attempt is warned that it is idle: at reclaim_at the action (`policy.idle`) follows unless it computes.

    reclaim_at None: no action follows.
    """

    job: str
    attempt: int
    action: str
    reclaim_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangReclaimed(Fact):
    """The attempt, idle since a moment, is reclaimed by this action, which follows in facts of its own."""

    job: str
    attempt: int
    action: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExtended(Fact):
    """The job is not reclaimed as idle before until; None: never."""

    job: str
    until: float | None = None
