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
        if state.array:
            ledger.arrays[state.array].known -= 1
        for before in state.spec.after:
            _no_longer_after(ledger, before, (state.seq, job))
        ledger.dependents.pop(job, None)
    for state in ledger.jobs.values():
        if state.spec.name in names:
            ledger.note_name(state)
    for array in fact.arrays:
        _forget_array(ledger, array)
    left = gone.union(fact.arrays)
    ledger.arrivals = [each for each in ledger.arrivals if each[1] not in left]
    ledger.ended = [state for state in ledger.ended if state.job not in gone]
    ledger.forgotten += len(gone)
    _forget_signatures(ledger)


def _forget_array(ledger: Ledger, array: str) -> None:
    gone = ledger.arrays.pop(array)
    assert gone.is_over and not gone.known, f"{array} has elements, and was forgotten"
    name = gone.spec.name
    if ledger.newest_array_of_name.get(name) == array:
        del ledger.newest_array_of_name[name]
        alike = [each.array for each in ledger.arrays.values() if each.spec.name == name]
        ledger.newest_array_of_name.update((name, each) for each in alike)
    for before in gone.spec.after:
        _no_longer_after(ledger, before, (gone.seq, array))
    ledger.dependents.pop(array, None)


def _forget_signatures(ledger: Ledger) -> None:
    """What no job asks for that is known has no number any more; whoever asks for it next gets a new one."""
    used = {state.signature for state in ledger.jobs.values()}
    ledger.signatures.forget_all_but(used)
    ledger.accounts.amounts.forget_all_but(used)


def _no_longer_after(ledger: Ledger, before: str, dependent: tuple[int, str]) -> None:
    others = ledger.dependents.get(before)
    if others is None:
        return
    others.remove(dependent)
    if not others:
        del ledger.dependents[before]
