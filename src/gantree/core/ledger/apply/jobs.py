"""Applies facts about submissions: accepted and rejected jobs, and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.core.ledger.job_parts import MeteredUse
from gantree.core.ledger.state import JobState
from gantree.model.facts import JobAccepted, JobRejected, PolicyAdopted

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def job_accepted(ledger: Ledger, fact: JobAccepted) -> None:
    """A job waits from now on."""
    assert fact.job not in ledger.jobs, f"{fact.job} accepted twice"
    state = JobState(
        fact.job, fact.spec, fact.priority, fact.seq, ledger.signatures.of(fact.spec), fact.at
    )
    state.queue = ledger.accounts.queue_of(fact.spec)
    state.held, state.metered = fact.spec.held, MeteredUse(fact.at)
    ledger.came.setdefault((fact.spec.queue, fact.spec.user))
    ledger.jobs[fact.job] = state
    ledger.newest_of_name[fact.spec.name] = fact.job
    ledger.enqueue(state, fact.at)
    ledger.next_seq = fact.seq + 1
    for name in fact.spec.after:
        ledger.dependents.setdefault(name, []).append(fact.job)


def job_rejected(ledger: Ledger, fact: JobRejected) -> None:
    """A job was not taken in."""
    ledger.rejected[fact.job] = fact.reason
    ledger.rejected_at[fact.job] = fact.at


def policy_adopted(ledger: Ledger, fact: PolicyAdopted) -> None:
    """A version of the policy is on record."""
    ledger.policies.append(fact)
