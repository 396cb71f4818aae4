"""Applies facts about forgotten jobs: nothing in the ledger refers to them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.model.facts import JobsForgotten

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def jobs_forgotten(ledger: Ledger, fact: JobsForgotten) -> None:
    """Jobs that have ended or were rejected leave the ledger; what was learned of them, and what they used, stays."""
    for job in fact.rejected:
        del ledger.rejected[job]
        ledger.rejected_at.pop(job, None)
    ledger.forgotten_rejected += len(fact.rejected)
    gone, names = frozenset(fact.jobs), set[str]()
    for job in fact.jobs:
        state = ledger.jobs.pop(job)
        assert state.ended_at is not None, f"{job} has not ended, and was forgotten"
        if ledger.newest_of_name.get(state.spec.name) == job:
            del ledger.newest_of_name[state.spec.name]
            names.add(state.spec.name)
        for before in state.spec.after:
            _no_longer_after(ledger, before, job)
        ledger.dependents.pop(job, None)
    for state in ledger.jobs.values():
        if state.spec.name in names:
            ledger.newest_of_name[state.spec.name] = state.job
    ledger.ended = [state for state in ledger.ended if state.job not in gone]
    ledger.forgotten += len(gone)
    _forget_signatures(ledger)


def _forget_signatures(ledger: Ledger) -> None:
    """What no job asks for that is known has no number any more; whoever asks for it next gets a new one."""
    used = {state.signature for state in ledger.jobs.values()}
    ledger.signatures.forget_all_but(used)
    ledger.accounts.amounts.forget_all_but(used)


def _no_longer_after(ledger: Ledger, before: str, job: str) -> None:
    others = ledger.dependents.get(before)
    if others is None:
        return
    others.remove(job)
    if not others:
        del ledger.dependents[before]
