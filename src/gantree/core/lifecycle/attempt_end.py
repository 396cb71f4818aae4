"""How an attempt ends, and what comes after it.

`GangEnded` is the only thing that frees a place, because only then is nothing of the gang
left. The cause of its stop (`StopCause`) decides what comes next: preempted gangs wait again, and so do failed ones
until their restarts are used up; all others are over, such as one that cannot be started. A gang that ended by itself
with 0 before its stop was decided has succeeded. A replica of a service is started again however it ended, until it
drains or is cancelled; one that ran for `STEADY_S` begins with the shortest back-off.
"""

from collections.abc import Callable
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.lost_gpus import members_on_lost_gpus
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import current_attempt, end_job
from gantree.model.events import Event, GangEnded
from gantree.model.facts import AttemptEnded, ClaimDropped, JobHeld, JobRequeued
from gantree.model.jobs import Restarts
from gantree.model.phases import FAILURES, Phase, StopCause
from gantree.policy.idle import DEFAULT_RULE
from gantree.policy.rules import Policy
from gantree.text.words import plural

GOES_ON = frozenset(
    {
        StopCause.PREEMPTED,
        StopCause.RESIZED,
        StopCause.MOVED,
        StopCause.SUSPENDED,
        StopCause.DRAINED,
        StopCause.BUDGET,
        StopCause.CHECK_FAILED,
        StopCause.IDLE,
    }
)
"""Causes after which a job waits again as if nothing had happened."""

MOST_DOUBLINGS = 30
"""Of a backoff; more than any limit in seconds leaves a meaning to."""
STEADY_S = 600.0
"""A replica that ran for so long counts as one that never failed, as for the kubelet."""
MOST_IDLE_DOUBLINGS = 2
"""Of the backoff of a gang that was reclaimed as idle."""


def _gang_ended(builder: DecisionBuilder, event: GangEnded, policy: Policy) -> None:
    state = current_attempt(builder, event.job, event.attempt)
    if state is None:
        return
    cause = _cause_of_end(state, event)
    is_redone = cause in FAILURES | GOES_ON and state.spec.service is None  # answers are not lost
    lost_s = state.at_stake_s(builder.now) if is_redone else 0.0
    ran_s = state.ran_s(builder.now)
    builder.record(
        AttemptEnded(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            exit_code=event.exit_code,
            gpu_s_lost=lost_s * state.gpus,
            lost_s=lost_s,
            gpus_unchanged=event.gpus_unchanged,
        )
    )
    if state.spec.service is not None:
        _after_attempt_of_replica(builder, state, cause, event.exit_code, ran_s)
    else:
        _after_attempt(builder, state, cause, event.exit_code)


def _cause_of_end(state: JobState, event: GangEnded) -> StopCause | None:
    """Why the attempt ended; None if by itself and well.

    A script may end with 0 as soon as it has answered a checkpoint request: that is no success either.
    """
    ended_at = event.observed_at if event.occurred_at is None else event.occurred_at
    is_stopping = (
        state.stop_decided_at is not None
        and ended_at >= state.stop_decided_at
        and not event.unprompted
    )
    if event.exit_code == 0 and not is_stopping and not state.answered:
        return None
    if state.stop_decided_at is None and not state.answered:
        return StopCause.RANK_FAILED
    return state.stop_cause


def _after_attempt(
    builder: DecisionBuilder, state: JobState, cause: StopCause | None, code: int
) -> None:
    """Decide what comes after an attempt that is over."""
    if cause is None:
        end_job(builder, state, Phase.SUCCEEDED, 0, "all ranks ended with 0")
    elif cause is StopCause.CANCELLED:
        end_job(builder, state, Phase.CANCELLED, code, "cancelled")
    elif cause is StopCause.TIME_LIMIT:
        limit = f"ran longer than its limit of {state.spec.time_limit_s:g} s"
        end_job(builder, state, Phase.TIMED_OUT, code, limit)
    elif cause is StopCause.IDLE_STOP:
        end_job(builder, state, Phase.CANCELLED, code, "its GPUs did not compute")
    elif cause is StopCause.CANNOT_START:
        end_job(builder, state, Phase.FAILED, code, state.reason)
    elif state.spec.on_cordoned:  # a burn-in never waits: its submitter can submit it again
        end_job(builder, state, Phase.FAILED, code, state.reason or f"{cause} (exit code {code})")
    elif cause is StopCause.IDLE:
        _requeue_idle(builder, state)
    elif cause in GOES_ON:
        _requeue(builder, state, cause, builder.now, state.failures)
    else:
        _restart_or_fail(builder, state, cause, code)


def _after_attempt_of_replica(
    builder: DecisionBuilder, state: JobState, cause: StopCause | None, code: int, ran_s: float
) -> None:
    """Start a replica again, after a back-off where it failed; one that was to end has ended, however it did."""
    if state.replica.draining or state.stop_cause is StopCause.CANCELLED:
        end_job(builder, state, Phase.CANCELLED, code, state.replica.drain_reason or state.reason)
    elif cause in GOES_ON:
        _requeue(builder, state, cause, builder.now, state.failures)
    else:
        failures = 1 if ran_s >= STEADY_S else state.failures + 1
        not_before = builder.now + _backoff_s(state.spec.restarts, failures)
        as_failure = cause if cause in FAILURES else StopCause.RANK_FAILED
        _requeue(builder, state, as_failure, not_before, failures)


def _restart_or_fail(
    builder: DecisionBuilder, state: JobState, cause: StopCause, code: int
) -> None:
    """Wait and start again, or give up. What a lost node or GPU does is not the job's failure: it does not count."""
    restarts, ledger = state.spec.restarts, builder.ledger
    assert state.placement is not None
    on_lost_gpu = bool(members_on_lost_gpus(ledger, state.placement))
    on_lost_node = any(member.node in ledger.unusable for member in state.placement.members)
    blameless = on_lost_gpu or on_lost_node
    failures = state.failures if blameless else state.failures + 1
    if _is_final(restarts, cause, code) and not blameless:
        codes = ", ".join(map(str, restarts.exit_codes))
        why = (
            f"{state.reason or cause} (exit code {code}); it restarts only after exit codes {codes}"
        )
        end_job(builder, state, Phase.FAILED, code, why)
        return
    if failures > restarts.limit:
        why = state.reason or f"{cause} (exit code {code})"
        if restarts.limit:
            why += f", after {plural(restarts.limit, 'restart')}"
        end_job(builder, state, Phase.FAILED, code, why)
        return
    backoff_s = 0.0 if on_lost_gpu else _backoff_s(restarts, failures)
    _requeue(builder, state, cause, builder.now + backoff_s, failures)


def _backoff_s(restarts: Restarts, failures: int) -> float:
    """Seconds until a gang starts again after so many failures."""
    doublings = min(max(0, failures - 1), MOST_DOUBLINGS)
    return float(min(restarts.backoff_max_s, restarts.backoff_s * 2**doublings))


def _requeue_idle(builder: DecisionBuilder, state: JobState) -> None:
    """Wait before it starts again, longer each time; a job that was reclaimed too often is held."""
    rule = builder.ledger.policy.idle_of(state.spec.queue) or DEFAULT_RULE
    reclaims = state.idle.reclaims
    doublings = min(max(0, reclaims - 1), MOST_IDLE_DOUBLINGS)
    not_before = builder.now + rule.reclaim_s * 2**doublings
    _requeue(builder, state, StopCause.IDLE, not_before, state.failures)
    if reclaims >= rule.times and not state.held:
        reason = f"reclaimed as idle {plural(reclaims, 'time')}; `gantree release {state.job}` releases it"
        builder.record(JobHeld(at=builder.now, job=state.job, reason=reason))


def _is_final(restarts: Restarts, cause: StopCause, code: int) -> bool:
    """Whether a process failed with an exit code after which the job is not started again."""
    is_failure = cause is StopCause.RANK_FAILED and restarts.limit > 0
    return is_failure and bool(restarts.exit_codes) and code not in restarts.exit_codes


def _requeue(
    builder: DecisionBuilder,
    state: JobState,
    cause: StopCause,
    not_before: float,
    failures: int,
) -> None:
    """Let it wait again. A gang that failed while it moved loses its claim on the other place."""
    if cause not in GOES_ON and state.job in builder.ledger.claims:
        builder.record(
            ClaimDropped(at=builder.now, job=state.job, reason=f"it was stopped: {cause}")
        )
    builder.record(
        JobRequeued(
            at=builder.now,
            job=state.job,
            cause=cause,
            not_before=not_before,
            failures=failures,
        )
    )


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    GangEnded: _gang_ended
}
