"""The events that a simulated cluster emits of an attempt: it has started, saved, ended."""

from dataclasses import dataclass

from gantree.model.events import CheckpointSaved, Event, GangEnded, GangStarted
from gantree.model.orders import StartGang
from gantree.sim.work import Attempt, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone(Event):
    """An attempt has done all its work; that it has ended is known a while later."""

    job: str


def started_event(order: StartGang, at: float) -> GangStarted:
    """All ranks of an attempt work, at a moment in seconds."""
    return GangStarted(
        id=f"{order.job}/{order.attempt}/started",
        observed_at=at,
        job=order.job,
        attempt=order.attempt,
    )


def saved_event(job: str, work: Work, attempt: Attempt, at: float) -> CheckpointSaved:
    """A checkpoint at a moment; its step is the whole seconds of work that it keeps."""
    return CheckpointSaved(
        id=f"{job}/{attempt.number}/checkpoint-{work.checkpoints + 1}",
        observed_at=at,
        job=job,
        attempt=attempt.number,
        step=int(attempt.work_done_s(at)),
    )


def ended_event(
    job: str, attempt: int, at: float, exit_code: int, occurred_at: float | None = None
) -> GangEnded:
    """Nothing is left of an attempt: seen at a moment, and since occurred_at where that was earlier."""
    return GangEnded(
        id=f"{job}/{attempt}/ended",
        observed_at=at,
        occurred_at=occurred_at,
        job=job,
        attempt=attempt,
        exit_code=exit_code,
    )
