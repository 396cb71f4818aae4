"""Applies facts about queues that lend by use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.model.facts import GuaranteeKept

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def guarantee_kept(ledger: Ledger, fact: GuaranteeKept) -> None:
    """A queue keeps more or less of its guarantee, and lends the rest."""
    ledger.accounts.keep(fact)
