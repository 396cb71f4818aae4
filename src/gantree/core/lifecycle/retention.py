"""Chooses the ended and rejected jobs that are forgotten; an event says how many are kept.

Whom an unfinished job comes after stays known, however long ago it ended: whether that one may start depends on it.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.model.events import EndedJobsDue, Event
from gantree.model.facts import JobEnded, JobsForgotten
from gantree.policy.rules import Policy

AT_ONCE = 1_000
"""So many are forgotten in one decision at most, which takes 10 to 20 ms with 100,000 jobs, and less with fewer."""


def _ended_jobs_due(builder: DecisionBuilder, event: EndedJobsDue, policy: Policy) -> None:
    ledger = builder.ledger
    older = islice(ledger.ended, max(0, len(ledger.ended) - event.keep))
    just_ended = {fact.job for fact in builder.facts if isinstance(fact, JobEnded)}
    gone = (
        state.job
        for state in older
        if state.ended_at is not None
        and state.ended_at < event.ended_before
        and state.job
        not in just_ended  # the history has no row of it before the decision is recorded
        and not _is_awaited(ledger, state.job)
    )
    jobs = tuple(islice(gone, AT_ONCE))
    rejected, arrays = _rejected_too_long_ago(ledger, event), _arrays_over(ledger, event)
    if jobs or rejected or arrays:
        builder.record(JobsForgotten(at=builder.now, jobs=jobs, rejected=rejected, arrays=arrays))


def _arrays_over(ledger: Ledger, event: EndedJobsDue) -> tuple[str, ...]:
    """The arrays that have ended and of which no element is known any more."""
    gone = (
        array.array
        for array in ledger.arrays.values()
        if array.ended_at is not None
        and array.ended_at < event.ended_before
        and not array.known
        and not _is_awaited(ledger, array.array)
    )
    return tuple(islice(gone, AT_ONCE))


def _rejected_too_long_ago(ledger: Ledger, event: EndedJobsDue) -> tuple[str, ...]:
    older = islice(ledger.rejected, max(0, len(ledger.rejected) - event.keep))
    gone = (job for job in older if ledger.rejected_at.get(job, 0.0) < event.ended_before)
    return tuple(islice(gone, AT_ONCE))


def _is_awaited(ledger: Ledger, job: str) -> bool:
    return any(not ledger.is_over(each) for each in ledger.dependents_of(job))


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    EndedJobsDue: _ended_jobs_due
}
