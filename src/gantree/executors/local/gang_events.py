"""The events of one attempt, derived from what its run directory holds. Ids are made of names alone, so an event that
is emitted twice, even by two daemons, is one event.
"""

from collections.abc import Iterable, Iterator

from gantree.executors.local.checkpoints import Saved
from gantree.executors.local.gang_outcome import GangOutcome
from gantree.executors.local.member import Member
from gantree.executors.local.run_directory import RunDirectory
from gantree.model.events import (
    CheckpointSaved,
    Event,
    GangEnded,
    GangStarted,
    GangStartFailed,
    MemberLost,
    MemberStarted,
    RankExited,
)
from gantree.model.replicas import Endpoint


def gang_events(
    run: RunDirectory,
    outcome: GangOutcome,
    saved: Iterable[Saved],
    now: float,
    endpoints: tuple[Endpoint, ...],
    *,
    stopped: bool,
    over: bool,
) -> Iterator[Event]:
    """All events of an attempt so far, in the order in which they happened."""
    job, attempt = run.job, run.attempt
    failure, started = outcome.start_failure, outcome.began
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
        yield GangStarted(
            id=f"{job}/{attempt}/started",
            observed_at=now,
            job=job,
            attempt=attempt,
            endpoints=endpoints,
        )
    if started or stopped or outcome.is_broken:
        yield from _checkpoint_events(run, saved, now)
        yield from _replacement_events(run, outcome, now)
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


def _replacement_events(run: RunDirectory, outcome: GangOutcome, now: float) -> Iterator[Event]:
    for member in outcome.members:
        if member.life and member.started:
            number = member.launch.node_rank
            yield MemberStarted(
                id=f"{run.job}/{run.attempt}/member-{number}-started{_life(member)}",
                observed_at=now,
                job=run.job,
                attempt=run.attempt,
                member=number,
                life=member.life,
            )


def _exit_events(run: RunDirectory, outcome: GangOutcome, now: float) -> Iterator[Event]:
    job, attempt = run.job, run.attempt
    member_of_rank = {rank: member for member in outcome.members for rank in member.exits}
    for each in outcome.exits:
        member = member_of_rank[each.rank]
        yield RankExited(
            id=f"{job}/{attempt}/rank-{each.rank}-exited{_life(member)}",
            observed_at=now,
            occurred_at=outcome.moment(each.ended_steady_s, now),
            job=job,
            attempt=attempt,
            rank=each.rank,
            exit_code=each.exit_code,
            life=member.life,
        )
    for member in outcome.lost:
        launch = member.launch
        yield MemberLost(
            id=f"{job}/{attempt}/member-{launch.node_rank}-lost{_life(member)}",
            observed_at=now,
            job=job,
            attempt=attempt,
            role=launch.role,
            member=launch.rank,
            reason=member.lost or "",
            rank=launch.first_rank,
            life=member.life,
        )


def _life(member: Member) -> str:
    """The end of an id: which life of a member it is about."""
    return f"-life-{member.life}" if member.life else ""
