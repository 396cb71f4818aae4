"""Applies facts about requests on a job: held, released, reprioritised, scaled.

What becomes of jobs by themselves is in `core.ledger.ledger`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.state import JobState
from gantree.model.facts import (
    JobBarred,
    JobHeld,
    JobReleased,
    JobReprioritised,
    JobScaled,
    PriorityChanged,
)
from gantree.model.node_restrictions import with_node_restrictions
from gantree.model.phases import HOLDING, Phase
from gantree.placement.request.sizes import resized

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def job_held(ledger: Ledger, fact: JobHeld) -> None:
    """A job is not started any more."""
    state = ledger.jobs[fact.job]
    state.held, state.held_for = True, fact.reason
    ledger.decided(state)
    if state.phase is Phase.PENDING:
        ledger.gated[fact.job] = None


def job_released(ledger: Ledger, fact: JobReleased) -> None:
    """A job may be started again."""
    state = ledger.jobs[fact.job]
    state.held, state.held_for = False, ""
    state.idle = replace(state.idle, reclaims=0)
    if ledger.is_alike(state):
        ledger.arrays[state.array].undecided[state.job] = None
    if not state.spec.after:
        ledger.gated.pop(fact.job, None)
    ledger.more_room()


def priority_changed(ledger: Ledger, fact: PriorityChanged | JobReprioritised) -> None:
    """A job has another number: it may stand elsewhere in the line, and by another right on its place."""
    state = ledger.jobs[fact.job]
    waits, holds = state.phase is Phase.PENDING, state.phase in HOLDING
    if waits:
        ledger.dequeue(state)
    if holds:
        ledger.count_holder(state, -1)
    state.priority = fact.priority
    if holds:
        ledger.count_holder(state, 1)
        ledger.accounts.rank_again(state)
        ledger.holders_version += 1
    if waits:
        _wait_again(ledger, state, fact.at)
    ledger.more_room()


def _wait_again(ledger: Ledger, state: JobState, at: float) -> None:
    """A job stands in line as it is now; it rests as long as it would have."""
    ledger.enqueue(state, at)
    if state.not_before > at:
        ledger.resting[state.job] = state.not_before


def job_reprioritised(ledger: Ledger, fact: JobReprioritised) -> None:
    """As `priority_changed`, for good."""
    state = ledger.jobs[fact.job]
    state.spec = replace(state.spec, priority=fact.asked)
    priority_changed(ledger, fact)


def job_scaled(ledger: Ledger, fact: JobScaled) -> None:
    """A job is as if it were written so; what it did counts for more of its run, the fewer its members are."""
    state = ledger.jobs[fact.job]
    waits = state.phase is Phase.PENDING
    if waits:
        ledger.dequeue(state)
    longer = state.spec.members / fact.members
    spec = resized(state.spec, fact.members)
    if spec.expected_s is not None:
        spec = replace(spec, expected_s=spec.expected_s * longer)
    state.spec, state.scaled, state.done_s = spec, True, state.done_s * longer
    state.signature = ledger.signatures.of(spec)
    if waits:
        _wait_again(ledger, state, fact.at)
    ledger.more_room()


def job_barred(ledger: Ledger, fact: JobBarred) -> None:
    """A job that waits asks for other nodes."""
    state = ledger.jobs[fact.job]
    ledger.dequeue(state)
    state.spec, state.barred_for = with_node_restrictions(state.spec, dict(fact.bars)), fact.reason
    state.signature = ledger.signatures.of(state.spec)
    _wait_again(ledger, state, fact.at)
    ledger.more_room()
