"""How much work a job is: as recorded where it ran to its end, else an estimate, and of what kind.

A job that reached its time limit has work for that long again, so that it reaches it again. A replica of a service ran
as long as its service wanted it, which is recorded. One that did not run to its
end has as much as its user expected, else as its time limit allows, else the median of those in its queue that did,
else of all that did, else an hour; and at least what it has done.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from gantree.sim.replay.recording import Ending, JobRecord

AN_HOUR_S = 3600.0
LEAST_LEFT_S = 1.0
"""Seconds of work that a job which had not ended has left, at least: else it would end at the moment it starts."""


class Source(StrEnum):
    """What the work of a job was taken from."""

    RECORD = "its recorded run"
    TIME_LIMIT = "its time limit"
    EXPECTED = "what its user expected"
    QUEUE = "the median of its queue"
    ALL = "the median of all jobs"
    HOUR = "an hour, as nothing is known"


@dataclass(frozen=True, slots=True)
class WorkOf:
    """Seconds of work of a job, and where they are from."""

    seconds: float
    source: Source


class WorkEstimates:
    """Knows the recorded runs, by queue."""

    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        self._all: list[float] = []
        self._of_queue: dict[str, list[float]] = {}
        for job in jobs:
            if job.ending is Ending.BY_ITSELF:
                self._all.append(job.work_s)
                self._of_queue.setdefault(job.spec.queue, []).append(job.work_s)
        self._medians = {queue: median(runs) for queue, runs in self._of_queue.items()}
        self._median = median(self._all) if self._all else None

    def of(self, job: JobRecord) -> WorkOf:
        """The work of a job."""
        if job.ending is Ending.BY_ITSELF:
            return WorkOf(job.work_s, Source.RECORD)
        if job.spec.service is not None and job.ending is Ending.REQUEST:
            return WorkOf(max(job.work_s, LEAST_LEFT_S), Source.RECORD)
        if job.ending is Ending.TIME_LIMIT and job.spec.time_limit_s is not None:
            return WorkOf(job.work_s + job.spec.time_limit_s, Source.TIME_LIMIT)
        guess = self._guess(job)
        return WorkOf(max(guess.seconds, job.work_s + LEAST_LEFT_S), guess.source)

    def _guess(self, job: JobRecord) -> WorkOf:
        spec = job.spec
        if spec.expected_s is not None:
            return WorkOf(spec.expected_s, Source.EXPECTED)
        if spec.time_limit_s is not None:
            return WorkOf(spec.time_limit_s, Source.TIME_LIMIT)
        if spec.queue in self._medians:
            return WorkOf(self._medians[spec.queue], Source.QUEUE)
        if self._median is not None:
            return WorkOf(self._median, Source.ALL)
        return WorkOf(AN_HOUR_S, Source.HOUR)
