"""Applies facts about job arrays (`core.ledger.array_state`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.state import JobState
from gantree.model.facts import (
    ArrayAccepted,
    ArrayEnded,
    ArrayHeld,
    ArrayReleased,
    ArrayReprioritised,
)

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def array_accepted(ledger: Ledger, fact: ArrayAccepted) -> None:
    """All elements of an array wait from now on."""
    assert fact.array not in ledger.arrays, f"{fact.array} accepted twice"
    spec = fact.spec
    array = ArrayState(fact.array, spec, fact.seq, fact.at, waits_since=fact.at, held=spec.held)
    array.queue = ledger.accounts.queue_of(spec)
    ledger.came.setdefault((spec.queue, spec.user))
    ledger.arrays[fact.array] = array
    ledger.newest_array_of_name[spec.name] = fact.array
    ledger.next_seq = fact.seq + array.size
    ledger.arrivals.append((fact.seq, fact.array))
    ledger.add_dependents(fact.array, fact.seq, spec.after)
    count_unsplit(ledger, array, array.unsplit)


def count_unsplit(ledger: Ledger, array: ArrayState, change: int) -> None:
    """So many more (or fewer) elements wait in an array; keep the index of arrays that have any."""
    ledger.accounts.wait_unsplit(array.queue, change)
    had_any = array.array in ledger.unsplit
    if array.unsplit:
        ledger.unsplit[array.array] = array
    else:
        ledger.unsplit.pop(array.array, None)
    ledger.waiting_of_user.change(array.spec.user, bool(array.unsplit) - had_any)


def split(ledger: Ledger, state: JobState) -> None:
    """A job was an element of an array until now; it waits already."""
    array = ledger.arrays[state.array]
    array.split(state.seq - array.seq)
    array.known += 1
    array.alive[state.job] = None
    if not state.held:
        array.undecided[state.job] = None
    count_unsplit(ledger, array, -1)


def element_ended(ledger: Ledger, state: JobState, at: float) -> None:
    """A split element has ended."""
    array = ledger.arrays[state.array]
    del array.alive[state.job]
    array.count_end(state.phase, 1, at)


def array_held(ledger: Ledger, fact: ArrayHeld) -> None:
    """The unsplit elements are not considered any more."""
    array = ledger.arrays[fact.array]
    array.held, array.spec = True, replace(array.spec, held=True)


def array_released(ledger: Ledger, fact: ArrayReleased) -> None:
    """The unsplit elements are considered again."""
    array = ledger.arrays[fact.array]
    array.held, array.spec = False, replace(array.spec, held=False)
    array.waits_since = fact.at


def array_reprioritised(ledger: Ledger, fact: ArrayReprioritised) -> None:
    """The unsplit elements have another priority once they are split."""
    array = ledger.arrays[fact.array]
    array.spec = replace(array.spec, priority=fact.asked)


def array_ended(ledger: Ledger, fact: ArrayEnded) -> None:
    """The unsplit elements never become jobs."""
    array = ledger.arrays[fact.array]
    unsplit = array.unsplit
    array.cut, array.cut_as = True, fact.outcome
    array.cut_at, array.reason = fact.at, fact.reason
    array.count_end(fact.outcome, unsplit, fact.at)
    count_unsplit(ledger, array, -unsplit)
