"""The lifecycle of a job: one function per event type.

What people ask of jobs is in `core.events.operator_requests`, what becomes of nodes in `core.events.nodes`; the table
of all is `core.events.reactions`. Nothing here looks for room; that is `cycle`. Each function reads the ledger, records
facts and gives orders. An event that no longer matters (of an older attempt, of an ended job) changes nothing. How an
attempt ends, and what comes after it, is in `attempt_end`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.arrays import end_unsplit
from gantree.core.lifecycle.best_step import numbered_and_priced
from gantree.core.lifecycle.idleness import warn_idle, warned_at
from gantree.core.lifecycle.launch import save_order, signal_order, start_order, stop_order
from gantree.core.lifecycle.replacing import can_live_without, member_of_rank, member_started, miss
from gantree.core.lifecycle.replica_drains import drain_then_stop, drains_first, grace_left_s
from gantree.core.lifecycle.timers import gap_over_at
from gantree.model.errors import BadInput, Unsupported
from gantree.model.events import (
    CheckpointSaved,
    Event,
    GangStarted,
    GangStartFailed,
    JobSubmitted,
    MemberLost,
    MemberStarted,
    RankExited,
)
from gantree.model.facts import (
    ArrayAccepted,
    CheckpointRecorded,
    CheckpointRequested,
    ClaimDropped,
    GangPlaced,
    GangRunning,
    GangWarned,
    JobAccepted,
    JobEnded,
    JobRejected,
    ReservationDropped,
    StopDecided,
)
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, HOLDING, Phase, StopCause
from gantree.model.placements import Placement
from gantree.placement.request.topology_request import topology_request_of
from gantree.policy.boosts import boost_of
from gantree.policy.rules import Policy
from gantree.text.words import plural


def start(
    builder: DecisionBuilder, state: JobState, placement: Placement, *, at_home: bool = False
) -> None:
    """Give the gang its place and tell the cluster. What was held for it is let go first."""
    if state.spec.parallelism and builder.ledger.policy.placement == "topology":
        placement = numbered_and_priced(builder.ledger, state, placement)
    if state.job in builder.ledger.reservations:
        builder.record(ReservationDropped(at=builder.now, job=state.job, reason="it starts"))
    builder.record(
        GangPlaced(
            at=builder.now,
            job=state.job,
            attempt=state.attempt + 1,
            placement=placement,
            at_home=at_home,
        )
    )
    builder.order(start_order(state))


def stop(
    builder: DecisionBuilder, state: JobState, cause: StopCause, policy: Policy, reason: str = "",
    grace_s: float | None = None,
) -> None:  # fmt: skip
    """Tell the attempt to stop. grace_s: at most so long between SIGTERM and SIGKILL; None: as the policy has it."""
    most_s = policy.grace_s if grace_s is None else min(grace_s, policy.grace_s)
    builder.record(
        StopDecided(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            cause=cause,
            grace_s=grace_left_s(state, most_s, builder.now),
            reason=reason,
        )
    )
    builder.order(stop_order(state))


def save_then_stop(
    builder: DecisionBuilder, state: JobState, cause: StopCause, policy: Policy, within_s: float = inf
) -> None:  # fmt: skip
    """Ask a running gang that declared checkpoints to save first, let a replica drain; tell any other to stop.

    within_s: it has left after so many seconds, whatever time it asked for to save.
    """
    checkpoint = state.spec.checkpoint
    if drains_first(builder.ledger, state, policy):
        drain_then_stop(builder, state, cause, policy)
        return
    if checkpoint is None or state.phase is not Phase.RUNNING:
        stop(builder, state, cause, policy)
        return
    save_s = min(checkpoint.grace_s, max(0.0, within_s - policy.grace_s))
    builder.record(
        CheckpointRequested(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            request=f"{state.job}/{state.attempt}/checkpoint",
            deadline_at=builder.now + save_s,
            cause=cause,
        )
    )
    builder.order(save_order(state))


def time_is_up(builder: DecisionBuilder, state: JobState, policy: Policy) -> None:
    """Act on a moment of `timers.due_moment` that has come."""
    if state.phase is Phase.SAVING:
        assert state.stop_cause is not None
        stop(builder, state, state.stop_cause, policy)
    elif state.phase is Phase.RUNNING and (gap_over_at(state) or inf) <= builder.now:
        missing = ", ".join(f"member {gap.member}: {gap.reason}" for gap in state.missing)
        stop(builder, state, StopCause.MEMBER_LOST, policy, f"not replaced in time: {missing}")
    elif state.phase is Phase.RUNNING and (warned_at(state, policy) or inf) <= builder.now:
        warn_idle(builder, state, policy)
    elif state.phase is Phase.RUNNING and (state.replica.drain_ends_at or inf) <= builder.now:
        stop(builder, state, StopCause.CANCELLED, policy, state.replica.drain_reason)
    elif state.phase is Phase.RUNNING and (state.replica.ready_by or inf) <= builder.now:
        assert state.spec.service is not None
        within_s = state.spec.service.ready.within_s
        reason = f"not ready within {within_s:g} s: {state.replica.reason or 'no probe succeeded'}"
        stop(builder, state, StopCause.START_FAILED, policy, reason)
    elif state.phase is Phase.RUNNING:
        limit_at, warn = state.limit_at, state.spec.warn
        if warn is not None and limit_at is not None and builder.now < limit_at:
            _warn(builder, state, warn.signal, limit_at)
        else:
            stop(builder, state, StopCause.TIME_LIMIT, policy)


def _warn(builder: DecisionBuilder, state: JobState, signal: str, limit_at: float) -> None:
    """Have the gang signalled. What nobody was there to do in time is not made up for: then it is stopped."""
    builder.record(
        GangWarned(
            at=builder.now, job=state.job, attempt=state.attempt, signal=signal, ends_at=limit_at
        )
    )
    builder.order(signal_order(state))


def end_job(
    builder: DecisionBuilder, state: JobState, outcome: Phase, code: int | None, reason: str
) -> None:
    """Record a job's end; what it held for later is dropped, and what waits for it in vain fails with it."""
    _end(builder, state, outcome, code, reason)
    if outcome is not Phase.SUCCEEDED:
        fail_dependents(builder, [name for name in (state.job, state.array) if name], outcome)


def fail_dependents(builder: DecisionBuilder, names: Iterable[str], outcome: Phase) -> None:
    """End with FAILED all that waits for these jobs or arrays, which have ended otherwise than well."""
    ledger = builder.ledger
    in_vain = deque((name, outcome) for name in names)
    while in_vain:
        before, phase = in_vain.popleft()
        reason = f"{before}, which it comes after, {phase}"
        for dependent in ledger.dependents_of(before):
            if dependent in ledger.arrays:
                end_unsplit(builder, ledger.arrays[dependent], Phase.FAILED, reason)
                in_vain.append((dependent, Phase.FAILED))
            elif ledger.jobs[dependent].phase is Phase.PENDING:
                _end(builder, ledger.jobs[dependent], Phase.FAILED, None, reason)
                in_vain.append((dependent, Phase.FAILED))


def _end(
    builder: DecisionBuilder, state: JobState, outcome: Phase, code: int | None, reason: str
) -> None:
    if state.job in builder.ledger.claims:
        builder.record(ClaimDropped(at=builder.now, job=state.job, reason="the job has ended"))
    if state.job in builder.ledger.reservations:
        builder.record(
            ReservationDropped(at=builder.now, job=state.job, reason="the job has ended")
        )
    builder.record(
        JobEnded(at=builder.now, job=state.job, outcome=outcome, exit_code=code, reason=reason)
    )


def unreadable(builder: DecisionBuilder, spec: Job) -> str:
    """Why the fabric has no word for what a job wishes of it (a tier that is not there); empty if it has."""
    if builder.ledger.fabric is None:
        return ""
    try:
        topology_request_of(builder.ledger.fabric, spec)
    except (BadInput, Unsupported) as error:
        return str(error)
    return ""


def _job_submitted(builder: DecisionBuilder, event: JobSubmitted, policy: Policy) -> None:
    ledger = builder.ledger
    if event.job in ledger.jobs or event.job in ledger.arrays or event.job in ledger.rejected:
        return
    reason = ledger.accounts.is_full(event.spec)
    service = ledger.services.get(event.job)
    if service is not None and service.is_live:
        reason = f"{event.job} is the name of a service"
    for name in event.spec.after:
        reason = _comes_in_vain_after(ledger, name) or reason
    accept(builder, event.job, event.spec, policy, reason)


def _comes_in_vain_after(ledger: Ledger, name: str) -> str:
    """Why a job that comes after another job or array can never start; "" if it can."""
    if name in ledger.arrays:
        in_vain = ledger.arrays[name].in_vain
        return f"it comes after {name}, of which {plural(in_vain, 'job')} failed" if in_vain else ""
    predecessor = ledger.jobs.get(name)
    if predecessor is None:
        return f"it comes after {name}, and there is no such job"
    if predecessor.phase in ENDED - {Phase.SUCCEEDED}:
        return f"it comes after {name}, which {predecessor.phase}"
    return ""


def accept(builder: DecisionBuilder, job: str, spec: Job, policy: Policy, reason: str = "") -> None:
    """Take a job or an array into its queue, or say why not: for a known reason, or because it cannot be read."""
    reason, priority = unfit(builder, spec) or reason, 0
    try:
        priority = policy.priority_of(spec.priority)
    except BadInput as error:
        reason = reason or str(error)
    if reason:
        builder.record(JobRejected(at=builder.now, job=job, reason=reason))
        return
    priority += boost_of(policy, spec, builder.now)
    seq = builder.ledger.next_seq
    if spec.array:
        builder.record(ArrayAccepted(at=builder.now, array=job, spec=spec, seq=seq))
        return
    builder.record(JobAccepted(at=builder.now, job=job, spec=spec, priority=priority, seq=seq))


def unfit(builder: DecisionBuilder, spec: Job) -> str:
    """Why a job suits neither the fabric nor the queues; empty if it does."""
    return unreadable(builder, spec) or builder.ledger.accounts.tree.problem(spec.queue)


def current_attempt(builder: DecisionBuilder, job: str, attempt: int) -> JobState | None:
    """The job, if this attempt of it still holds its place."""
    state = builder.ledger.jobs.get(job)
    if state is None or state.attempt != attempt or state.phase not in HOLDING:
        return None
    return state


def _gang_started(builder: DecisionBuilder, event: GangStarted, policy: Policy) -> None:
    state = current_attempt(builder, event.job, event.attempt)
    if state is not None and state.phase is Phase.STARTING:
        builder.record(
            GangRunning(
                at=builder.now, job=state.job, attempt=state.attempt, endpoints=event.endpoints
            )
        )


def _stop_after_failure(
    builder: DecisionBuilder,
    event: GangStartFailed | RankExited | MemberLost,
    cause: StopCause,
    policy: Policy,
    reason: str,
) -> None:
    state = current_attempt(builder, event.job, event.attempt)
    if state is None or state.phase is Phase.STOPPING:
        return
    if state.spec.restarts.replace_s is None or isinstance(event, GangStartFailed):
        stop(builder, state, cause, policy, reason)
    else:
        _replace_or_stop(builder, state, event, cause, policy, reason)


def _replace_or_stop(
    builder: DecisionBuilder,
    state: JobState,
    event: RankExited | MemberLost,
    cause: StopCause,
    policy: Policy,
    reason: str,
) -> None:
    """The others stay if they can; what is told of an earlier life of the member is passed over."""
    member = None if event.rank is None else member_of_rank(state, event.rank)
    if member is not None and event.life != state.life_of(member):
        return
    if member is not None and can_live_without(state, member, cause):
        miss(builder, state, member, cause, reason)
    else:
        stop(builder, state, cause, policy, reason)


def _gang_start_failed(builder: DecisionBuilder, event: GangStartFailed, policy: Policy) -> None:
    cause = StopCause.CANNOT_START if event.final else StopCause.START_FAILED
    if event.check_failed:
        cause = StopCause.CHECK_FAILED
    _stop_after_failure(builder, event, cause, policy, event.reason)


def _rank_exited(builder: DecisionBuilder, event: RankExited, policy: Policy) -> None:
    if event.exit_code != 0:
        reason = f"rank {event.rank} ended with {event.exit_code}"
        _stop_after_failure(builder, event, StopCause.RANK_FAILED, policy, reason)


def _member_lost(builder: DecisionBuilder, event: MemberLost, policy: Policy) -> None:
    reason = f"member {event.member} of {event.role} was lost: {event.reason}"
    _stop_after_failure(builder, event, StopCause.MEMBER_LOST, policy, reason)


def _checkpoint_saved(builder: DecisionBuilder, event: CheckpointSaved, policy: Policy) -> None:
    state = current_attempt(builder, event.job, event.attempt)
    if state is None:
        return
    builder.record(
        CheckpointRecorded(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            step=event.step,
            request=event.request,
        )
    )
    if state.phase is Phase.SAVING and event.request == state.request:
        assert state.stop_cause is not None
        stop(builder, state, state.stop_cause, policy)


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    JobSubmitted: _job_submitted,
    GangStarted: _gang_started,
    GangStartFailed: _gang_start_failed,
    RankExited: _rank_exited,
    MemberLost: _member_lost,
    MemberStarted: member_started,
    CheckpointSaved: _checkpoint_saved,
}
