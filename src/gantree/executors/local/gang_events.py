"""The events of one attempt, derived from what its run directory holds. Ids are made of names alone, so an event that
is emitted twice, even by two daemons, is one event.
"""

from collections.abc import Iterable, Iterator

from gantree.executors.local.checkpoints import Saved
from gantree.executors.local.gang_outcome import GangOutcome
from gantree.executors.local.run_directory import RunDirectory
from gantree.model.events import (
    CheckpointSaved,
    Event,
    GangEnded,
    GangStarted,
    GangStartFailed,
    MemberLost,
    RankExited,
)


def gang_events(
    run: RunDirectory,
    outcome: GangOutcome,
    saved: Iterable[Saved],
    now: float,
    *,
    stopped: bool,
    over: bool,
) -> Iterator[Event]:
    """All events of an attempt so far, in the order in which they happened."""
    job, attempt = run.job, run.attempt
    failure, started = outcome.start_failure, outcome.has_started
    if failure is not None:
        yield GangStartFailed(
            id=f"{job}/{attempt}/start-failed",
            observed_at=now,
            job=job,
            attempt=attempt,
            reason=failure.reason,
            final=failure.final,
            check_failed=failure.check_failed,
        )
    elif started:
        yield GangStarted(id=f"{job}/{attempt}/started", observed_at=now, job=job, attempt=attempt)
    if started or stopped or outcome.is_broken:
        yield from _checkpoint_events(run, saved, now)
        yield from _exit_events(run, outcome, now)
    if over:
        yield GangEnded(
            id=f"{job}/{attempt}/ended",
            observed_at=now,
            job=job,
            attempt=attempt,
            exit_code=outcome.exit_code,
            occurred_at=outcome.ended_at(now),
            unprompted=outcome.is_unprompted,
            gpus_unchanged=outcome.gpus_unchanged,
        )


def _checkpoint_events(run: RunDirectory, saved: Iterable[Saved], now: float) -> Iterator[Event]:
    for each in saved:
        is_answer = each.request is not None
        name = f"answer-to/{each.request}" if is_answer else f"checkpoint-at-{each.step}"
        yield CheckpointSaved(
            id=f"{run.job}/{run.attempt}/{name}",
            observed_at=now,
            job=run.job,
            attempt=run.attempt,
            step=each.step,
            request=each.request,
        )


def _exit_events(run: RunDirectory, outcome: GangOutcome, now: float) -> Iterator[Event]:
    job, attempt = run.job, run.attempt
    for each in outcome.exits:
        yield RankExited(
            id=f"{job}/{attempt}/rank-{each.rank}-exited",
            observed_at=now,
            occurred_at=outcome.moment(each.ended_steady_s, now),
            job=job,
            attempt=attempt,
            rank=each.rank,
            exit_code=each.exit_code,
        )
    for member in outcome.lost:
        launch = member.launch
        yield MemberLost(
            id=f"{job}/{attempt}/member-{launch.node_rank}-lost",
            observed_at=now,
            job=job,
            attempt=attempt,
            role=launch.role,
            member=launch.rank,
            reason=member.lost or "",
        )
