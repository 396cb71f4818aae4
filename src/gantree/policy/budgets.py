"""Budgets of queues as figures: what resource-time costs, and when an amount is reached.

What queues have consumed is in `core.ledger.accounts.consumption`, what is decided when a budget is used up in
`core.lifecycle.budgets`, their periods in `policy.utc_calendar`. Times are seconds as `Event.observed_at`.
"""

from dataclasses import dataclass
from math import inf

from gantree.model.budget_facts import BudgetNoted
from gantree.policy.amounts import MODEL
from gantree.policy.rules import Amounts, Budget

_ROUNDING = 1e-12
"""Parts of a budget that rounding may lack."""
_MARGIN_S = 1e-3
"""So much after a moment that was computed, an amount is reached in spite of rounding."""


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """The use of a budget at a moment. The period is from started_at to ends_at; "total" is from 0 to infinity.

    counted is what was used of it, in its unit, until counted_to (not after `at`); per_s is what each second since then
    has cost. Every answer follows from these, so it is the same whenever it is asked for.
    """

    budget: Budget
    at: float
    started_at: float
    ends_at: float
    counted_to: float
    counted: float
    per_s: float

    @property
    def used(self) -> float:
        """What is used, in the unit of the budget."""
        return self.counted + self.per_s * (self.at - self.counted_to)

    @property
    def level(self) -> float:
        """The highest alert level that is reached, as a part of the budget; 0 below the first."""
        return max((level for level in self.budget.alerts if self._reaches(level)), default=0.0)

    @property
    def is_used_up(self) -> bool:
        """Whether the whole budget is used."""
        return self._reaches(1.0)

    @property
    def is_closed(self) -> bool:
        """Whether nothing may start any more in this period."""
        return self.is_used_up and self.budget.at_limit != "warn"

    @property
    def forecast(self) -> float:
        """What will be used at the end of the period at the present rate; what is used now where it never ends."""
        return self.used + (self.per_s * (self.ends_at - self.at) if self.ends_at < inf else 0.0)

    @property
    def runs_out_at(self) -> float:
        """When the budget is used up at the present rate, in seconds; inf for not in this period."""
        moment = self._reached_at(1.0)
        return moment if moment <= self.ends_at else inf

    @property
    def next_change(self) -> float:
        """The next moment at which time alone brings another level, or a new period; inf if there is none."""
        reached = [self._reached_at(level) for level in (*self.budget.alerts, 1.0)]
        matters = self.per_s or any(moment <= self.at for moment in reached)
        later = [moment for moment in reached if moment > self.at]
        return min((*later, self.ends_at if matters else inf))

    def _reaches(self, part: float) -> bool:
        return self._reached_at(part) <= self.at

    def _reached_at(self, part: float) -> float:
        left = part * self.budget.amount - self.counted
        if left <= _ROUNDING * self.budget.amount:
            return self.counted_to
        return self.counted_to + left / self.per_s + _MARGIN_S if self.per_s else inf


def cost(budget: Budget, amounts: Amounts) -> float:
    """Return what amounts of resources cost in `per_s` seconds, in the unit of a budget."""
    of_models = total = 0.0
    for resource, amount in amounts.items():
        if resource.startswith(MODEL):
            of_models += amount
            total += amount * budget.weights.get(resource, budget.other_gpus)
        elif resource != "gpus":
            total += amount * budget.weights.get(resource, 0.0)
    return total + max(0.0, amounts.get("gpus", 0.0) - of_models) * budget.other_gpus


def figure(amount: float) -> str:
    """Return an amount for people, with two digits behind the point at most: 10,000 or 0.25."""
    return f"{round(amount, 2):,.15g}"


def noted_in_words(fact: BudgetNoted) -> str:
    """Return one sentence on what was noted of a budget."""
    period = "in all" if fact.period == "total" else f"this {fact.period}"
    used = f"{figure(fact.used)} of {figure(fact.amount)} {fact.unit} used {period}"
    if fact.closed:
        return f"The budget of queue {fact.queue} is used up, nothing of it starts: {used}."
    return f"The budget of queue {fact.queue}: {used}."
