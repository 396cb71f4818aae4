"""Reports of counters on idle gangs, the reclaim of those that were warned, and requests for leases.

A gang is reclaimed only when a sample finds it idle after its moment (`core.lifecycle.idleness`): it is asked to save
where its job declares checkpoints, and stopped, shrunk or moved as the policy of its queue has it.
"""

from collections.abc import Callable
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.idleness import can_be_idle, reclaimed_at, terms_now
from gantree.core.lifecycle.lifecycle import save_then_stop
from gantree.core.preemption.free_capacity import move
from gantree.core.queue.scaling import place_at_size
from gantree.core.queue.slower_gpus import place_on_slower_gpus
from gantree.model.events import Event, ExtensionRequested, GangIdlenessObserved
from gantree.model.facts import JobScaled
from gantree.model.idle_facts import GangIdlenessNoted, GangReclaimed, JobExtended
from gantree.model.phases import ENDED, StopCause
from gantree.model.placements import Placement
from gantree.placement.request.sizes import sizes_of
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.policy.rules import Policy


def _gang_idleness_observed(
    builder: DecisionBuilder, event: GangIdlenessObserved, policy: Policy
) -> None:
    state = builder.ledger.jobs.get(event.job)
    if state is None or state.attempt != event.attempt or not can_be_idle(state):
        return
    was_idle, is_idle = state.idle.since is not None, event.since is not None
    if was_idle != is_idle:
        builder.record(_noted(builder, state, event))
    elif is_idle and _is_due(builder, state, policy):
        _reclaim(builder, state, policy)


def _noted(
    builder: DecisionBuilder, state: JobState, event: GangIdlenessObserved
) -> GangIdlenessNoted:
    """The fact of a change; a gang is idle neither before it ran nor in time to come."""
    since = event.since
    if since is not None:
        assert state.running_at is not None
        since = min(builder.now, max(since, state.running_at))
    return GangIdlenessNoted(
        at=builder.now, job=state.job, attempt=state.attempt, since=since, reason=event.reason
    )


def _is_due(builder: DecisionBuilder, state: JobState, policy: Policy) -> bool:
    moment = reclaimed_at(state, policy)
    return moment is not None and moment <= builder.now


def _reclaim(builder: DecisionBuilder, state: JobState, policy: Policy) -> None:
    terms = terms_now(state, policy)
    assert terms is not None and state.idle.since is not None
    action, placement = str(terms.action), None
    if action == "shrink":
        placement = _shrunk(builder, state, policy)
    elif action == "smaller":
        placement = place_on_slower_gpus(builder.ledger, state, placement_preferences_of(policy))
    if action in ("shrink", "smaller") and placement is None:
        action = "requeue"
    builder.record(
        GangReclaimed(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            action=action,
            since=state.idle.since,
        )
    )
    if placement is None:
        cause = StopCause.IDLE_STOP if action == "stop" else StopCause.IDLE
        save_then_stop(builder, state, cause, policy)
    else:
        _move(builder, state, placement, action)


def _shrunk(builder: DecisionBuilder, state: JobState, policy: Policy) -> Placement | None:
    """The placement of an elastic gang at its fewest members; None for one that has no more, or is not elastic."""
    if state.spec.elastic is None or len(state.spec.roles) != 1 or state.placement is None:
        return None
    fewest = min(sizes_of(state.spec))
    if len(state.placement.members) <= fewest:
        return None
    return place_at_size(builder.ledger, state, fewest, placement_preferences_of(policy))


def _move(builder: DecisionBuilder, state: JobState, placement: Placement, action: str) -> None:
    """Restart a gang there. One that was shrunk stays so: it would grow into the same room at once."""
    if action != "shrink":
        move(builder, state, placement, StopCause.MOVED)
        return
    members = len(placement.members)
    builder.record(JobScaled(at=builder.now, job=state.job, members=members))
    move(builder, state, placement, StopCause.RESIZED)


def _extension_requested(
    builder: DecisionBuilder, event: ExtensionRequested, policy: Policy
) -> None:
    state = builder.ledger.jobs.get(event.job)
    if state is not None and state.phase not in ENDED:
        builder.record(JobExtended(at=builder.now, job=state.job, until=event.until))


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    GangIdlenessObserved: _gang_idleness_observed,
    ExtensionRequested: _extension_requested,
}
