"""What it means to a ledger that jobs are forgotten: nothing in it names them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.model.facts import JobsForgotten

if TYPE_CHECKING:
    from gantree.core.ledger import Ledger


def jobs_forgotten(ledger: Ledger, fact: JobsForgotten) -> None:
    """Jobs that have ended leave the ledger; what was learned of them, and what they used, stays in the accounts."""
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


def _no_longer_after(ledger: Ledger, before: str, job: str) -> None:
    others = ledger.dependents.get(before)
    if others is None:
        return
    others.remove(job)
    if not others:
        del ledger.dependents[before]
