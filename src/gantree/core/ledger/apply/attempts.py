"""Applies facts about the attempt of a gang: placed, running, saving, stopping, suspended, warned. Its end is in
`ends`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.apply.foreign_holders import count_foreign_holders, release_foreign_holders
from gantree.core.ledger.apply.held_room import take_place
from gantree.core.ledger.apply.preempting_claims import end_count_if_outlived
from gantree.core.ledger.job_parts import NO_SLICES, TimeSlices
from gantree.core.ledger.usage import gpus_of_model
from gantree.model.facts import (
    CheckpointRecorded,
    CheckpointRequested,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangRunning,
    GangSuspended,
    GangWarned,
    StopDecided,
)
from gantree.model.phases import Phase

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def gang_placed(ledger: Ledger, fact: GangPlaced) -> None:
    """A gang holds a place; all that belongs to one attempt begins anew."""
    state = ledger.jobs[fact.job]
    assert fact.found or fact.attempt == state.attempt + 1, (
        f"{fact.job}: attempt {fact.attempt} after {state.attempt}"
    )
    is_taken = fact.found and ledger.rooms().missing(fact.placement.members)
    in_the_way = release_foreign_holders(ledger, fact.placement.nodes) if is_taken else []
    take_place(ledger, fact.job, fact.placement)
    count_foreign_holders(ledger, in_the_way)
    ledger.move(state, Phase.STARTING, fact.at)
    ledger.accounts.start(state, fact.placement, fact.at)
    ledger.placings += 1
    state.attempt, state.placement, state.placed_at = fact.attempt, fact.placement, fact.at
    state.running_at = state.checkpoint_at = state.request = state.deadline_at = None
    state.stop_cause = state.stop_decided_at = state.preempted_by = None
    state.answered, state.reason, state.moving = False, "", None
    state.slices, state.warned = NO_SLICES, False
    state.idle = replace(state.idle.over(), warnings=0)
    state.at_home, state.found = fact.at_home, fact.found
    held = gpus_of_model(ledger.accounts.amounts.held(fact.placement))
    devices = ledger.accounts.amounts.held_devices(fact.placement)
    hosts = ledger.accounts.amounts.held_hosts(fact.placement)
    state.metered = replace(
        state.metered, gpus_of_model=held, gpus_of_device=devices, hosts_of_model=hosts
    )
    state.held_gpus = sum(len(member.gpus) for member in fact.placement.members)
    parts = sum(len(member.parts) for member in fact.placement.members)
    state.touched_gpus = max(1, state.held_gpus + parts)


def gang_running(ledger: Ledger, fact: GangRunning) -> None:
    """All members of a gang run."""
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.RUNNING, fact.at)
    state.running_at, state.failed_checks = fact.at, 0
    if state.spec.service is not None:
        replica, within_s = state.replica, state.spec.service.ready.within_s
        ready_by = None if replica.was_ready or replica.draining else fact.at + within_s
        state.replica = replace(replica, endpoints=fact.endpoints, ready_by=ready_by)
    if state.spec.elastic is not None or ledger.policy.falls_ever_back:
        ledger.holders_version += 1
    if state.started_at is None:
        state.started_at = fact.at


def gang_preempted(ledger: Ledger, fact: GangPreempted) -> None:
    """A gang was chosen as a victim."""
    state = ledger.jobs[fact.job]
    end_count_if_outlived(ledger, state, fact)
    state.preempted_by = fact.by
    state.preempted_at = (*state.preempted_at, fact.at)


def gang_suspended(ledger: Ledger, fact: GangSuspended) -> None:
    """A time-sliced gang rests."""
    state = ledger.jobs[fact.job]
    slices, state.idle = state.slices, state.idle.over()
    ledger.accounts.note_idle(state, fact.at)
    state.slices = TimeSlices(
        suspended=True,
        turns=slices.turns + 1,
        turned_at=fact.at,
        suspended_s=slices.suspended_s,
    )
    ledger.accounts.suspend(state, fact.at)


def gang_resumed(ledger: Ledger, fact: GangResumed) -> None:
    """A time-sliced gang computes again."""
    state = ledger.jobs[fact.job]
    slices = state.slices
    suspended_s = slices.suspended_s
    if slices.suspended and slices.turned_at is not None and state.running_at is not None:
        suspended_s += fact.at - max(slices.turned_at, state.running_at)
    state.slices = TimeSlices(
        turn_ends_at=fact.turn_ends_at,
        turns=slices.turns + 1,
        turned_at=fact.at,
        suspended_s=suspended_s,
    )
    if slices.suspended:
        ledger.accounts.resume(state, fact.at)


def checkpoint_requested(ledger: Ledger, fact: CheckpointRequested) -> None:
    """A gang was told to save before it stops."""
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.SAVING, fact.at)
    state.request, state.deadline_at, state.stop_cause = fact.request, fact.deadline_at, fact.cause


def checkpoint_recorded(ledger: Ledger, fact: CheckpointRecorded) -> None:
    """A checkpoint is durable."""
    state = ledger.jobs[fact.job]
    state.checkpoint_step, state.checkpoint_at = fact.step, fact.at
    attempt = state.metered.measured_attempt.saved(fact.at)
    state.metered = replace(state.metered, measured_attempt=attempt)
    if ledger.policy.preemption.gain:
        ledger.holders_version += 1
    state.answered = state.answered or (fact.request is not None and fact.request == state.request)


def gang_warned(ledger: Ledger, fact: GangWarned) -> None:
    """A gang got the signal that its time limit is near."""
    ledger.jobs[fact.job].warned = True


def stop_decided(ledger: Ledger, fact: StopDecided) -> None:
    """A gang was told to stop."""
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.STOPPING, fact.at)
    if state.stop_decided_at is None:
        state.stop_decided_at = fact.at
    state.stop_cause, state.stop_grace_s, state.deadline_at = fact.cause, fact.grace_s, None
    state.reason = fact.reason or state.reason
