"""How many claims of a job count towards its back-off (`core.queue.preemption_backoff`): those made since the count
ended.

The count ends with what no cycle of preemption can cause: an attempt that ended for another reason than room for
others, or the end of the job that preempted this one the time before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.core.ledger.state import JobState
from gantree.model.facts import GangPreempted, JobRequeued, RoomClaimed
from gantree.model.phases import ENDED, StopCause

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger

FOR_OTHERS = frozenset({StopCause.PREEMPTED, StopCause.RESIZED, StopCause.MOVED})
"""Causes by which an attempt ends to make room for another job."""


def count_claim(state: JobState, fact: RoomClaimed) -> None:
    """A job has claimed room; if it preempts others for it, that counts."""
    if fact.preempts:
        state.preempting_claims += 1
        state.preempting_claim_at = fact.at


def end_count_if_outlived(ledger: Ledger, state: JobState, fact: GangPreempted) -> None:
    """A job is preempted: if it has outlived the job that preempted it the time before, its count ends."""
    before = ledger.jobs.get(state.yielded_to or "")
    if state.yielded_to is not None and (before is None or before.phase in ENDED):
        state.preempting_claims = 0
    state.yielded_to = fact.by


def end_count_if_not_for_others(state: JobState, fact: JobRequeued) -> None:
    """A job waits again: if its attempt ended for another reason than room for others, its count ends."""
    if fact.cause not in FOR_OTHERS:
        state.preempting_claims = 0
