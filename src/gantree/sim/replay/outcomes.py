"""What became of a job, read from the ledger of a record or of a simulation in one way; and figures over jobs.

Waits are over jobs that started, completion times over jobs that ran to an end (they succeeded, failed or reached
their time limit). Percentiles are by nearest rank, as in `sim.results`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from gantree.core.ledger.state import JobState
from gantree.model.phases import HOLDING, Phase
from gantree.sim.results import DIGITS, statistics

REJECTED = "rejected"
"""Outcome of a job that was not taken into the queue."""
RAN_TO_AN_END = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.TIMED_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """One job. outcome is its phase, or REJECTED. Times are seconds; held_gpu_s counts a part of a GPU as that part."""

    job: str
    name: str
    queue: str
    user: str
    gpus: int
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: str = REJECTED
    attempts: int = 0
    preemptions: int = 0
    held_gpu_s: float = 0.0
    lost_gpu_s: float = 0.0

    @property
    def wait_s(self) -> float | None:
        """From submission to the first start."""
        return None if self.started_at is None else self.started_at - self.submitted_at

    @property
    def jct_s(self) -> float | None:
        """From submission to the end, of a job that ran to an end."""
        if self.ended_at is None or self.started_at is None or self.outcome not in RAN_TO_AN_END:
            return None
        return self.ended_at - self.submitted_at


def outcome_of(state: JobState, now: float, shift_s: float = 0.0) -> JobOutcome:
    """What a ledger knows of a job at a moment; shift_s is added to its times."""
    spec, spent = state.spec, state.metered.spent
    held_gpu_s = fsum(held for _, held, _ in spent)
    since = state.metered.metered_at
    if state.phase in HOLDING and since is not None and not state.suspended:
        held_gpu_s += (now - since) * fsum(gpus for _, gpus in state.metered.gpus_of_model)
    return JobOutcome(
        job=state.job,
        name=spec.name,
        queue=spec.queue,
        user=spec.user,
        gpus=spec.gpus,
        submitted_at=state.submitted_at + shift_s,
        started_at=None if state.started_at is None else state.started_at + shift_s,
        ended_at=None if state.ended_at is None else state.ended_at + shift_s,
        outcome=state.phase.value,
        attempts=state.attempt,
        preemptions=state.preemptions,
        held_gpu_s=held_gpu_s,
        lost_gpu_s=fsum(lost for _, _, lost in spent),
    )


def figures(
    jobs: Sequence[JobOutcome], load: Sequence[JobOutcome], gpus: int, since: float, until: float
) -> dict[str, Any]:
    """The figures of one set of outcomes. load are all jobs that held GPUs since a moment, jobs those to be counted.

    until is the end of a record, or of a simulation. gpu_utilisation is GPU-seconds held over GPUs x makespan.
    """
    ends = [job.ended_at for job in load if job.ended_at is not None]
    last = max(ends) if ends and len(ends) == len(load) else until
    makespan_s = max(0.0, last - since)
    held_gpu_s = fsum(job.held_gpu_s for job in load)
    capacity_gpu_s = gpus * makespan_s
    return {
        **queue_figures(jobs),
        "makespan_s": round(makespan_s, DIGITS),
        "gpu_utilisation": round(held_gpu_s / capacity_gpu_s, DIGITS) if capacity_gpu_s else 0.0,
        "gpu_hours_lost": round(fsum(job.lost_gpu_s for job in load) / 3600, DIGITS),
    }


def queue_figures(jobs: Sequence[JobOutcome]) -> dict[str, Any]:
    """The figures that make sense of a part of the jobs."""
    return {
        "jobs": len(jobs),
        "started": sum(job.started_at is not None for job in jobs),
        "finished": sum(job.jct_s is not None for job in jobs),
        "wait_s": statistics([job.wait_s for job in jobs if job.wait_s is not None]),
        "jct_s": statistics([job.jct_s for job in jobs if job.jct_s is not None]),
        "preemptions": sum(job.preemptions for job in jobs),
        "gpu_hours": round(fsum(job.held_gpu_s for job in jobs) / 3600, DIGITS),
    }
