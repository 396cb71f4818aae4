"""The record, the recorded policy simulated, and another policy simulated, beside each other.

What another policy would change is the difference between the two simulations. How sure that is, the first two say: the
recorded policy simulated differs from the record only by what a simulation does not know, so a change that is smaller
than that difference is within its error.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gantree.sim.replay.outcomes import JobOutcome, figures, queue_figures
from gantree.sim.replay.recording import Ending, Recording
from gantree.sim.replay.replaying import Replayed
from gantree.sim.replay.work import WorkEstimates
from gantree.sim.results import DIGITS, mean, nearest_rank

SAME_WITHIN_S = 1.0
"""Starts that are no further apart are the same."""
MOVED_MOST = 10
"""So many jobs are named on each side."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A recording, with the recorded policy (None: not on record, or not simulated) and another one simulated."""

    recording: Recording
    as_recorded: Replayed | None
    under_policy: Replayed

    @property
    def before(self) -> Sequence[JobOutcome]:
        """What the policy is compared with: the recorded policy simulated, else the record."""
        return self.recorded if self.as_recorded is None else self.as_recorded.jobs

    @property
    def recorded(self) -> Sequence[JobOutcome]:
        """The record."""
        return [record.outcome for record in self.recording.jobs]

    def _counted(self, jobs: Sequence[JobOutcome]) -> list[JobOutcome]:
        """Those that were submitted since the recording began."""
        pairs = zip(self.recording.jobs, jobs, strict=True)
        return [job for record, job in pairs if record.done_before_s is None]

    def document(self) -> dict[str, Any]:
        """All that can be said, for replay.json."""
        return {
            "recorded": self._figures(self.recorded, self.recording.read_to),
            "recorded_policy": self._of(self.as_recorded),
            "policy": self._of(self.under_policy),
            "queues": self._queues(),
            "starts": moves(self._counted(self.before), self._counted(self.under_policy.jobs)),
            "assumed": self.assumed(),
            "error": self.error(),
        }

    def _of(self, replayed: Replayed | None) -> dict[str, Any] | None:
        return None if replayed is None else self._figures(replayed.jobs, replayed.ended_at)

    def _figures(self, jobs: Sequence[JobOutcome], until: float) -> dict[str, Any]:
        gpus, since = self.under_policy.result.gpus, self.recording.began_at
        return figures(self._counted(jobs), jobs, gpus, since, until)

    def sides(self) -> dict[str, Sequence[JobOutcome]]:
        """The sets of outcomes by name."""
        sides: dict[str, Sequence[JobOutcome]] = {"recorded": self.recorded}
        if self.as_recorded is not None:
            sides["recorded_policy"] = self.as_recorded.jobs
        sides["policy"] = self.under_policy.jobs
        return sides

    def _queues(self) -> dict[str, Any]:
        sides = {side: self._counted(jobs) for side, jobs in self.sides().items()}
        queues = dict.fromkeys(job.queue for job in self.recorded)
        return {
            queue: {
                side: queue_figures([job for job in jobs if job.queue == queue])
                for side, jobs in sides.items()
            }
            for queue in sorted(queues)
        }

    def assumed(self) -> dict[str, Any]:
        """What the replay rests on that is not in the record."""
        recording, estimates = self.recording, WorkEstimates(self.recording.jobs)
        measured = recording.measured
        sources = Counter(estimates.of(record).source.value for record in recording.jobs)
        endings = Counter(record.ending.value for record in recording.jobs)
        return {
            "work_from": dict(sorted(sources.items())),
            "ended_by": {each.value: endings[each.value] for each in Ending if endings[each.value]},
            "start_s": round(measured.overheads.start_s, DIGITS),
            "stop_s": round(measured.overheads.stop_s, DIGITS),
            "save_s": round(measured.overheads.save_s, DIGITS),
            "starts_measured": measured.starts,
            "stops_measured": measured.stops,
            "saves_measured": measured.saves,
            "carried_over": recording.carried,
            "policies": len(recording.policies),
            "jobs_not_in_the_journal": recording.forgotten,
            "requests_since": recording.compacted_at,
        }

    def error(self) -> dict[str, Any] | None:
        """How far the recorded policy simulated is from the record: by how much starts and the makespan differ."""
        if self.as_recorded is None:
            return None
        apart_s = sorted(
            abs(then.started_at - was.started_at)
            for was, then in zip(
                self._counted(self.recorded), self._counted(self.as_recorded.jobs), strict=True
            )
            if was.started_at is not None and then.started_at is not None
        )
        was_s = self._figures(self.recorded, self.recording.read_to)["makespan_s"]
        then_s = self._figures(self.as_recorded.jobs, self.as_recorded.ended_at)["makespan_s"]
        return {
            "start_s": {
                "mean": mean(apart_s),
                "p50": nearest_rank(apart_s, 50),
                "p95": nearest_rank(apart_s, 95),
                "max": apart_s[-1] if apart_s else None,
            },
            "makespan": round(then_s / was_s - 1, DIGITS) if was_s else None,
        }


def moves(before: Sequence[JobOutcome], after: Sequence[JobOutcome]) -> dict[str, Any]:
    """How many jobs start earlier, later and at the same time, and those whose start moves most."""
    moved = [
        (then.started_at - was.started_at, then.job, then.name)
        for was, then in zip(before, after, strict=True)
        if was.started_at is not None and then.started_at is not None
    ]
    earlier = sorted(each for each in moved if each[0] < -SAME_WITHIN_S)
    later = sorted((each for each in moved if each[0] > SAME_WITHIN_S), reverse=True)
    pairs = list(zip(before, after, strict=True))
    return {
        "earlier": len(earlier),
        "later": len(later),
        "same": len(moved) - len(earlier) - len(later),
        "only_before": sum(
            was.started_at is not None and then.started_at is None for was, then in pairs
        ),
        "only_under_policy": sum(
            was.started_at is None and then.started_at is not None for was, then in pairs
        ),
        "most_earlier": [_named(each) for each in earlier[:MOVED_MOST]],
        "most_later": [_named(each) for each in later[:MOVED_MOST]],
    }


def _named(move: tuple[float, str, str]) -> dict[str, Any]:
    by_s, job, name = move
    return {"job": job, "name": name, "by_s": round(by_s, DIGITS)}
