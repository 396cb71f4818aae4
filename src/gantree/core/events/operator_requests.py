"""What people ask: of jobs (cancel, hold, suspend, release, scale, another priority, moves) and of the policy.

Whoever asks was told before whether it can be; what has become impossible since is passed over. A job that runs and is
suspended is *held* from then on, as a waiting one would be, and stopped as gently as it can be; it keeps its place in
the order of arrival.
"""

from collections.abc import Callable
from typing import Any

from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import end_job, save_then_stop, stop
from gantree.core.preemption.free_capacity import move
from gantree.core.queue.scaling import place_at_size
from gantree.model.errors import BadInput
from gantree.model.events import (
    CancelRequested,
    DefragmentRequested,
    Event,
    HoldRequested,
    PolicySubmitted,
    PriorityRequested,
    ReleaseRequested,
    ScaleRequested,
    SuspendRequested,
)
from gantree.model.facts import (
    ClaimDropped,
    JobHeld,
    JobReleased,
    JobReprioritised,
    JobScaled,
    PolicyAdopted,
    PriorityChanged,
    ReservationDropped,
)
from gantree.model.phases import ENDED, Phase, StopCause
from gantree.placement.request.preferences import PlacementPreferences
from gantree.placement.request.sizes import sizes_of
from gantree.planning.preferences import preferences_of
from gantree.policy.boosts import boost_of
from gantree.policy.rules import Policy

UNDER_WAY = (Phase.STARTING, Phase.RUNNING)


def _cancel_requested(draft: Draft, event: CancelRequested, policy: Policy) -> None:
    state = _alive(draft, event.job)
    if state is None:
        return
    if state.phase is Phase.PENDING:
        end_job(draft, state, Phase.CANCELLED, None, "cancelled while it waited")
    elif state.stop_cause is not StopCause.CANCELLED:
        stop(draft, state, StopCause.CANCELLED, policy)


def _alive(draft: Draft, job: str) -> JobState | None:
    """The job, if it was taken and has not ended."""
    state = draft.ledger.jobs.get(job)
    return None if state is None or state.phase in ENDED else state


def _hold_requested(draft: Draft, event: HoldRequested, policy: Policy) -> None:
    state = _alive(draft, event.job)
    waits = state is not None and (state.phase is Phase.PENDING or state.leaving)
    if state is not None and waits and not state.held:
        _hold(draft, state, event.reason)


def _hold(draft: Draft, state: JobState, reason: str = "") -> None:
    draft.record(JobHeld(at=draft.now, job=state.job, reason=reason))
    withdraw(draft, state.job, "the job is held")


def withdraw(draft: Draft, job: str, reason: str) -> None:
    """Let go of all that is held for a job."""
    if job in draft.ledger.claims:
        draft.record(ClaimDropped(at=draft.now, job=job, reason=reason))
    if job in draft.ledger.bookings:
        draft.record(ReservationDropped(at=draft.now, job=job, reason=reason))


def _suspend_requested(draft: Draft, event: SuspendRequested, policy: Policy) -> None:
    """Hold a job, whatever it does; one that leaves anyway leaves as it was told to."""
    state = _alive(draft, event.job)
    if state is None or state.held:
        return
    _hold(draft, state)
    if state.phase in UNDER_WAY:
        save_then_stop(draft, state, StopCause.SUSPENDED, policy)


def _release_requested(draft: Draft, event: ReleaseRequested, policy: Policy) -> None:
    state = _alive(draft, event.job)
    if state is not None and state.held:
        draft.record(JobReleased(at=draft.now, job=state.job))


def _scale_requested(draft: Draft, event: ScaleRequested, policy: Policy) -> None:
    """A waiting gang asks for so many; one that runs goes on with so many at once if there is room, else with what it
    has, until it starts anew or grows."""
    state = _alive(draft, event.job)
    if state is None or event.members not in sizes_of(state.spec):
        return
    if not state.scaled or state.spec.members != event.members:
        draft.record(JobScaled(at=draft.now, job=state.job, members=event.members))
    if state.phase is Phase.PENDING:
        withdraw(draft, state.job, "the job has another size")
    elif state.phase in UNDER_WAY and state.moving is None:
        _resize(draft, state, event.members, preferences_of(policy))


def _resize(draft: Draft, state: JobState, members: int, preferences: PlacementPreferences) -> None:
    assert state.placement is not None
    if len(state.placement.members) != members:
        placement = place_at_size(draft.ledger, state, members, preferences)
        if placement is not None:
            move(draft, state, placement, StopCause.RESIZED)


def _priority_requested(draft: Draft, event: PriorityRequested, policy: Policy) -> None:
    state = _alive(draft, event.job)
    if state is None or state.spec.priority == event.priority:
        return
    try:
        number = policy.priority_of(event.priority) + boost_of(policy, state.spec, draft.now)
    except BadInput:  # the policy has changed since it was asked
        return
    draft.record(
        JobReprioritised(at=draft.now, job=state.job, asked=event.priority, priority=number)
    )


def _defragment_requested(draft: Draft, event: DefragmentRequested, policy: Policy) -> None:
    """Nothing by itself: it is planned once the walk has found no room by other means (`core.cycle.moves`)."""
    state = _alive(draft, event.job)
    if state is not None and state.phase is Phase.PENDING:
        draft.moves_for.append(event.job)


def _policy_submitted(draft: Draft, event: PolicySubmitted, policy: Policy) -> None:
    """The policy that rules this scheduler is on record from now on, and every job has the number that it gives it."""
    number = len(draft.ledger.policies) + 1
    draft.record(
        PolicyAdopted(
            at=draft.now, number=number, text=event.text, source=event.source, by=event.by
        )
    )
    for state in list(draft.ledger.jobs.values()):
        if state.ended_at is None:
            priority = policy.priority_of(state.spec.priority)
            priority += boost_of(policy, state.spec, draft.now)
            if priority != state.priority:
                draft.record(PriorityChanged(at=draft.now, job=state.job, priority=priority))


REACTIONS: dict[type[Event], Callable[[Draft, Any, Policy], None]] = {
    CancelRequested: _cancel_requested,
    HoldRequested: _hold_requested,
    SuspendRequested: _suspend_requested,
    ReleaseRequested: _release_requested,
    ScaleRequested: _scale_requested,
    PriorityRequested: _priority_requested,
    DefragmentRequested: _defragment_requested,
    PolicySubmitted: _policy_submitted,
}
