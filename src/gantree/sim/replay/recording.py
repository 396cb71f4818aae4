"""What a journal has recorded: jobs with what became of them, requests, changes of the site, and measured overheads.

Times are seconds of `Event.observed_at`, as in the journal.
"""

from dataclasses import dataclass
from enum import StrEnum

from gantree.model.cluster import Cluster
from gantree.model.events import Event
from gantree.model.facts import PolicyAdopted
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.sim.overheads import Overheads
from gantree.sim.replay.outcomes import REJECTED, JobOutcome


class Ending(StrEnum):
    """What ended a job, or that nothing has."""

    BY_ITSELF = "by itself"
    TIME_LIMIT = "its time limit"
    REQUEST = "a request"
    NEVER_RAN = "never ran"
    NOT_ENDED = "not ended"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job: its specification as submitted, elements of arrays by themselves, and what became of it.

    work_s are seconds that it ran (at the size it was written with) less what it had to do again because it was
    stopped or its node was lost: what it would have run undisturbed. exit_code is the last one, array the array of
    which it is an element, seq its place in order of arrival (-1: rejected). done_before_s is work that it had done
    when the recording began; None for a job that was submitted since.
    """

    spec: Job
    outcome: JobOutcome
    work_s: float = 0.0
    exit_code: int | None = None
    array: str = ""
    seq: int = -1
    done_before_s: float | None = None

    @property
    def ending(self) -> Ending:
        """What ended it."""
        if self.outcome.ended_at is None and self.outcome.outcome != REJECTED:
            return Ending.NOT_ENDED
        if self.outcome.started_at is None:
            return Ending.NEVER_RAN
        if self.outcome.outcome == Phase.TIMED_OUT:
            return Ending.TIME_LIMIT
        return Ending.REQUEST if self.outcome.outcome == Phase.CANCELLED else Ending.BY_ITSELF


@dataclass(frozen=True, slots=True)
class MeasuredOverheads:
    """Medians over the record, and over how many starts, stops and requested checkpoints."""

    overheads: Overheads
    starts: int
    stops: int
    saves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A part of the past. read_to is the moment of the newest fact.

    began_at is the first submission, or since when it was asked for; jobs that had not ended then are carried over.
    site is the cluster as first described; requests are what users and operators asked and what the site told, in
    order. policies are the versions that were adopted. forgotten jobs had ended and are no longer in the journal.
    compacted_at is the moment before which requests are no longer in the journal; None if all are.
    """

    jobs: tuple[JobRecord, ...]
    site: Cluster
    requests: tuple[Event, ...]
    policies: tuple[PolicyAdopted, ...]
    measured: MeasuredOverheads
    began_at: float
    read_to: float
    forgotten: int = 0
    compacted_at: float | None = None

    @property
    def carried(self) -> int:
        """How many jobs were there before it began."""
        return sum(record.done_before_s is not None for record in self.jobs)
