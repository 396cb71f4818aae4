"""Applies facts about cells: the domain to which each is bound, and the gangs that run in their queue's own cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.model.facts import CellBound, CellReleased, GangAtHome

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def cell_bound(ledger: Ledger, fact: CellBound) -> None:
    """A queue has a domain for one of its cells."""
    ledger.bound[fact.queue, fact.tier, fact.number] = fact.domain


def cell_released(ledger: Ledger, fact: CellReleased) -> None:
    """Nothing runs in a cell any more, and it may be bound to another domain."""
    del ledger.bound[fact.queue, fact.tier, fact.number]


def gang_at_home(ledger: Ledger, fact: GangAtHome) -> None:
    """A gang runs in a cell of its queue from now on."""
    ledger.jobs[fact.job].at_home = True
