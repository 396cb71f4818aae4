"""GPU time of a span, of the journal's facts: what replicas held, and in what training ran."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(slots=True)
class Attempt:
    """One attempt of a job: GPUs held from placed_at to ended_at, at work from running_at until leaving_at."""

    job: str
    gpus: int
    placed_at: float
    running_at: float | None = None
    leaving_at: float | None = None
    ended_at: float | None = None

    def held_s(self, begin: float, end: float) -> float:
        """GPU-seconds that it held between two moments."""
        return self.gpus * _overlap(self.placed_at, self.ended_at, begin, end)

    def worked_s(self, begin: float, end: float) -> float:
        """GPU-seconds in which it ran and was not about to stop."""
        if self.running_at is None:
            return 0.0
        stop = self.leaving_at if self.leaving_at is not None else self.ended_at
        return self.gpus * _overlap(self.running_at, stop, begin, end)


def attempts(facts: Iterable[Json]) -> Iterator[Attempt]:
    """The attempts of all jobs, in the order in which they were placed."""
    made: list[Attempt] = []
    open_of: dict[str, Attempt] = {}
    for fact in facts:
        kind, at, data = fact["fact"], fact["at"], fact["data"]
        job = data.get("job")
        if kind == "GangPlaced":
            gpus = sum(len(each["gpus"]) for each in data["placement"]["members"])
            open_of[job] = Attempt(job, gpus, at)
            made.append(open_of[job])
        elif job in open_of:
            _note(open_of[job], kind, at)
            if kind == "AttemptEnded":
                del open_of[job]
    yield from made


def _note(attempt: Attempt, kind: str, at: float) -> None:
    if kind == "GangRunning":
        attempt.running_at = at
    elif kind in ("GangPreempted", "StopDecided") and attempt.leaving_at is None:
        attempt.leaving_at = at
    elif kind == "AttemptEnded":
        attempt.ended_at = at


def _overlap(begin: float, end: float | None, first: float, last: float) -> float:
    return max(0.0, min(last, last if end is None else end) - max(first, begin))
