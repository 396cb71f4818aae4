"""Facts about budgets of queues."""

from dataclasses import dataclass

from gantree.model.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNoted(Fact):
    """How far the budget of a queue is used: an alert level was reached, it was used up, or there is more again.

    amount is the budget and used what was used of it, both in unit. level is the highest alert level that is reached,
    as a part of the budget; 0 for none. closed: nothing of the queue starts until ends_at, the end of the period in
    seconds (None: it has none), or until the budget is raised.
    """

    queue: str
    period: str
    unit: str
    amount: float
    used: float
    level: float
    closed: bool
    ends_at: float | None
