"""Applies facts about budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.model.budget_facts import BudgetNoted

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def budget_noted(ledger: Ledger, fact: BudgetNoted) -> None:
    """A budget reached a level, is used up, or has more again."""
    ledger.accounts.note_budget(fact)
