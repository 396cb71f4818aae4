"""Handles requests about jobs (cancel, hold, suspend, release, scale, reprioritise, defragment) and the policy.

Whoever asks was told before whether it can be; what has become impossible since is passed over. A job that runs and is
suspended is *held* from then on, as a waiting one would be, and stopped as gently as it can be; it keeps its place in
the order of arrival.
"""

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.arrays import end_unsplit, split_element
from gantree.core.lifecycle.lifecycle import end_job, fail_dependents, save_then_stop, stop
from gantree.core.preemption.free_capacity import move
from gantree.core.queue.scaling import place_at_size
from gantree.core.services.replicas import end_replica, service_of
from gantree.core.services.requests import end_service
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
    ArrayHeld,
    ArrayReleased,
    ArrayReprioritised,
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
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.request.sizes import sizes_of
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.policy.boosts import boost_of
from gantree.policy.rules import Policy

UNDER_WAY = (Phase.STARTING, Phase.RUNNING)
CANCELLED = "cancelled while it waited"


def _cancel_requested(builder: DecisionBuilder, event: CancelRequested, policy: Policy) -> None:
    service = builder.ledger.services.get(event.job)
    if service is not None and service.is_live:
        end_service(builder, service, event.reason or "cancelled", policy)
        return
    for state in _alive(builder, event.job):
        of_service = service_of(builder.ledger, state)
        if of_service is not None and not event.if_pending:
            end_replica(builder, of_service, state, event.reason or "cancelled", policy)
        elif state.phase is Phase.PENDING:
            end_job(builder, state, Phase.CANCELLED, None, event.reason or CANCELLED)
        elif state.stop_cause is not StopCause.CANCELLED and not event.if_pending:
            stop(builder, state, StopCause.CANCELLED, policy)
    array = builder.ledger.arrays.get(event.job)
    if array is not None and array.unsplit:
        end_unsplit(builder, array, Phase.CANCELLED, CANCELLED)
        fail_dependents(builder, [array.array], Phase.CANCELLED)


def _alive(builder: DecisionBuilder, name: str) -> list[JobState]:
    """The jobs that a request is about and that have not ended: one, or the split elements of an array.

    A request about an unsplit element splits it.
    """
    ledger = builder.ledger
    array = ledger.arrays.get(name)
    if array is not None:
        return sorted(map(ledger.jobs.__getitem__, array.alive), key=attrgetter("seq"))
    element = ledger.never_split(name)
    if element is not None and not element[0].cut:
        split_element(builder, *element)
    state = ledger.jobs.get(name)
    return [] if state is None or state.phase in ENDED else [state]


def _hold_requested(builder: DecisionBuilder, event: HoldRequested, policy: Policy) -> None:
    for state in _alive(builder, event.job):
        if (state.phase is Phase.PENDING or state.leaving) and not state.held:
            _hold(builder, state, event.reason)
    _hold_unsplit(builder, event.job)


def _hold_unsplit(builder: DecisionBuilder, name: str) -> None:
    array = builder.ledger.arrays.get(name)
    if array is not None and array.may_split:
        builder.record(ArrayHeld(at=builder.now, array=array.array))


def _hold(builder: DecisionBuilder, state: JobState, reason: str = "") -> None:
    builder.record(JobHeld(at=builder.now, job=state.job, reason=reason))
    withdraw(builder, state.job, "the job is held")


def withdraw(builder: DecisionBuilder, job: str, reason: str) -> None:
    """Let go of all that is held for a job."""
    if job in builder.ledger.claims:
        builder.record(ClaimDropped(at=builder.now, job=job, reason=reason))
    if job in builder.ledger.reservations:
        builder.record(ReservationDropped(at=builder.now, job=job, reason=reason))


def _suspend_requested(builder: DecisionBuilder, event: SuspendRequested, policy: Policy) -> None:
    """Hold a job, whatever it does; one that leaves anyway leaves as it was told to."""
    for state in _alive(builder, event.job):
        if state.held:
            continue
        _hold(builder, state)
        if state.phase in UNDER_WAY:
            save_then_stop(builder, state, StopCause.SUSPENDED, policy)
    _hold_unsplit(builder, event.job)


def _release_requested(builder: DecisionBuilder, event: ReleaseRequested, policy: Policy) -> None:
    array = builder.ledger.arrays.get(event.job)
    if array is not None and array.held and array.unsplit:
        builder.record(ArrayReleased(at=builder.now, array=array.array))
    for state in _alive(builder, event.job):
        if state.held:
            builder.record(JobReleased(at=builder.now, job=state.job))


def _scale_requested(builder: DecisionBuilder, event: ScaleRequested, policy: Policy) -> None:
    """A waiting gang asks for so many; one that runs goes on with so many at once if there is room, else with what it
    has, until it starts anew or grows."""
    for state in _alive(builder, event.job):
        if event.members in sizes_of(state.spec):
            _scale(builder, state, event, policy)


def _scale(
    builder: DecisionBuilder, state: JobState, event: ScaleRequested, policy: Policy
) -> None:
    if not state.scaled or state.spec.members != event.members:
        builder.record(JobScaled(at=builder.now, job=state.job, members=event.members))
    if state.phase is Phase.PENDING:
        withdraw(builder, state.job, "the job has another size")
    elif state.phase in UNDER_WAY and state.moving is None:
        _resize(builder, state, event.members, placement_preferences_of(policy))


def _resize(
    builder: DecisionBuilder, state: JobState, members: int, preferences: PlacementPreferences
) -> None:
    assert state.placement is not None
    if len(state.placement.members) != members:
        placement = place_at_size(builder.ledger, state, members, preferences)
        if placement is not None:
            move(builder, state, placement, StopCause.RESIZED)


def _priority_requested(builder: DecisionBuilder, event: PriorityRequested, policy: Policy) -> None:
    try:
        number = policy.priority_of(event.priority)
    except BadInput:  # the policy has changed since it was asked
        return
    for state in _alive(builder, event.job):
        if state.spec.priority != event.priority:
            priority = number + boost_of(policy, state.spec, builder.now)
            builder.record(
                JobReprioritised(
                    at=builder.now, job=state.job, asked=event.priority, priority=priority
                )
            )
    array = builder.ledger.arrays.get(event.job)
    if array is not None and array.unsplit and array.spec.priority != event.priority:
        builder.record(ArrayReprioritised(at=builder.now, array=array.array, asked=event.priority))


def _defragment_requested(
    builder: DecisionBuilder, event: DefragmentRequested, policy: Policy
) -> None:
    """Nothing by itself: the next pass makes the moves (`core.cycle.moves`)."""
    builder.moves_for += [
        replace(event, job=state.job)
        for state in _alive(builder, event.job)
        if state.phase is Phase.PENDING
    ]


def _policy_submitted(builder: DecisionBuilder, event: PolicySubmitted, policy: Policy) -> None:
    """The policy that rules this scheduler is on record from now on, and every job has the number that it gives it."""
    number = len(builder.ledger.policies) + 1
    builder.record(
        PolicyAdopted(
            at=builder.now, number=number, text=event.text, source=event.source, by=event.by
        )
    )
    for state in builder.ledger.in_arrival_order():
        if state.ended_at is None:
            priority = policy.priority_of(state.spec.priority)
            priority += boost_of(policy, state.spec, builder.now)
            if priority != state.priority:
                builder.record(PriorityChanged(at=builder.now, job=state.job, priority=priority))


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    CancelRequested: _cancel_requested,
    HoldRequested: _hold_requested,
    SuspendRequested: _suspend_requested,
    ReleaseRequested: _release_requested,
    ScaleRequested: _scale_requested,
    PriorityRequested: _priority_requested,
    DefragmentRequested: _defragment_requested,
    PolicySubmitted: _policy_submitted,
}
