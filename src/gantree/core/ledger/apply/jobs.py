"""Applies facts about submissions: accepted and rejected jobs, and policies."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from gantree.core.ledger.apply.arrays import split
from gantree.core.ledger.apply.services import replica_accepted
from gantree.core.ledger.job_parts import MeteredUse
from gantree.core.ledger.state import JobState
from gantree.model.facts import JobAccepted, JobRejected, PolicyAdopted

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def job_accepted(ledger: Ledger, fact: JobAccepted) -> None:
    """A job waits from now on."""
    assert fact.job not in ledger.jobs, f"{fact.job} accepted twice"
    array = ledger.arrays[fact.array] if fact.array else None
    submitted_at = fact.at if array is None else array.submitted_at
    state = JobState(
        fact.job, fact.spec, fact.priority, fact.seq, ledger.signatures.of(fact.spec), submitted_at
    )
    state.array, state.queue = fact.array, ledger.accounts.queue_of(fact.spec)
    waits_since = fact.at if array is None or array.held else array.waits_since
    state.held, state.metered = fact.spec.held, MeteredUse(waits_since)
    ledger.came.setdefault((fact.spec.queue, fact.spec.user))
    ledger.jobs[fact.job] = state
    ledger.note_name(state)
    ledger.enqueue(state, fact.at)
    ledger.next_seq = max(ledger.next_seq, fact.seq + 1)
    ledger.add_dependents(fact.job, fact.seq, fact.spec.after)
    if array is None:
        insort(ledger.arrivals, (fact.seq, fact.job))
    else:
        split(ledger, state)
    if fact.spec.service is not None:
        replica_accepted(ledger, state)


def job_rejected(ledger: Ledger, fact: JobRejected) -> None:
    """A job was not taken in."""
    ledger.rejected[fact.job] = fact.reason
    ledger.rejected_at[fact.job] = fact.at


def policy_adopted(ledger: Ledger, fact: PolicyAdopted) -> None:
    """A version of the policy is on record."""
    ledger.policies.append(fact)
