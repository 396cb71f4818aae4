"""Budgets in the ledger: what queues have consumed, what was noted of their budgets, and which queues are closed.

A queue is closed by a fact (`BudgetNoted`), not by time, so an admission depends on the ledger alone. That is
decided in `core.lifecycle.budgets`. A closed queue starts nothing, nor does a queue below it; a gang that runs stays,
moves and shrinks, and does not grow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gantree.core.ledger.accounts.consumption import Consumption, ConsumptionSnapshot, queues_above
from gantree.core.ledger.state import JobState
from gantree.model.budget_facts import BudgetNoted
from gantree.model.phases import HOLDING
from gantree.model.verdicts import Gate
from gantree.policy.budgets import BudgetUse, cost, figure
from gantree.policy.queues import QueueTree
from gantree.policy.quota.admission import Admission
from gantree.policy.rules import Amounts, Budget, Period, Policy
from gantree.policy.utc_calendar import period_in_words, period_of, utc_date

LONGEST_FIRST: tuple[Period, ...] = ("total", "month", "week", "day")
"""The order in which budgets of one queue refuse."""


class BudgetKey(NamedTuple):
    """Names a budget: a queue has one for each period at most."""

    queue: str
    period: str


@dataclass(frozen=True, slots=True)
class BudgetsSnapshot:
    """What does not follow from the policy: consumption by queue, and the last fact of each budget."""

    consumption: tuple[ConsumptionSnapshot, ...] = ()
    noted: tuple[BudgetNoted, ...] = ()


NO_BUDGETS = BudgetsSnapshot()


class Budgets:
    """The budgets of one policy. noted is the last fact of each budget, also of earlier policies."""

    def __init__(self, policy: Policy, tree: QueueTree) -> None:
        self._tree = tree
        self.of_key: dict[BudgetKey, Budget] = {
            BudgetKey(rule.path, budget.period): budget
            for rule in policy.queues
            for budget in rule.budgets
        }
        self.consumption = Consumption()
        self.noted: dict[BudgetKey, BudgetNoted] = {}
        self._closed: dict[int, dict[str, Admission]] = {}

    def use(self, key: BudgetKey, now: float) -> BudgetUse:
        """Return the use of a budget of the policy at a moment in seconds."""
        budget = self.of_key[key]
        started_at, ends_at = period_of(budget.period, now)
        counted_to = max(started_at, self.consumption.counted_to(key.queue))
        consumed = self.consumption.used(key.queue, budget.period, counted_to)
        counted = cost(budget, consumed) / budget.per_s
        per_s = cost(budget, self.consumption.held(key.queue)) / budget.per_s
        return BudgetUse(budget, now, started_at, ends_at, counted_to, counted, per_s)

    def over(self, queue: str) -> Iterator[BudgetKey]:
        """Yield the budgets that the jobs of a queue use, from the top of the tree."""
        for path in queues_above(queue):
            yield from self.of_queue(path)

    def of_queue(self, queue: str) -> Iterator[BudgetKey]:
        """Yield the budgets of a queue itself."""
        node = self._tree.queue_node(queue)
        rule = None if node is None else self._tree.rule[node]
        for budget in rule.budgets if rule is not None else ():
            yield BudgetKey(queue, budget.period)

    def note(self, fact: BudgetNoted) -> bool:
        """Apply a fact; return whether it opens a queue that was closed."""
        key = BudgetKey(fact.queue, fact.period)
        self.noted[key] = fact
        node = self._tree.queue_node(fact.queue)
        if node is None or key not in self.of_key:
            return False
        if fact.closed:
            self._closed.setdefault(node, {})[fact.period] = _refusal(self._tree, node, fact)
            return False
        closed = self._closed.get(node, {})
        opens = closed.pop(fact.period, None) is not None
        if not closed:
            self._closed.pop(node, None)
        return opens

    def kept(self) -> BudgetsSnapshot:
        """Return what to go on from."""
        return BudgetsSnapshot(self.consumption.kept(), tuple(self.noted.values()))

    def go_on_from(self, kept: BudgetsSnapshot) -> None:
        """Take over what was kept; the gangs that are placed must be counted already."""
        self.consumption.go_on_from(kept.consumption)
        for fact in kept.noted:
            self.note(fact)

    @property
    def any_closed(self) -> bool:
        """Whether any queue is closed."""
        return bool(self._closed)

    def is_closed(self, node: int) -> bool:
        """Return whether a node of the queue tree is in a closed queue."""
        return bool(self._closed) and not self._closed.keys().isdisjoint(self._tree.path(node))

    def refuses_instead(self, node: int, held: Amounts, amounts: Amounts) -> bool:
        """Return whether a gang at a node may not hold other amounts: by a budget that is used up they cost more."""
        if not self.is_closed(node):
            return False
        path = self._tree.path(node)
        keys = (
            BudgetKey(self._tree.queue[each], period)
            for each in path
            for period in self._closed.get(each, ())
        )
        return any(cost(self.of_key[key], amounts) > cost(self.of_key[key], held) for key in keys)

    def refusal(self, state: JobState) -> Admission | None:
        """Return the refusal of a job that would start in a closed queue; None for others.

        One that runs, or is about to go on at a place that is held for it, has started already.
        """
        if not self._closed:
            return None
        has_started = state.phase in HOLDING and not state.leaving
        if has_started or state.moving is not None:
            return None
        for node in self._tree.path(state.queue):
            closed = self._closed.get(node, {})
            for period in LONGEST_FIRST:
                if period in closed:
                    return closed[period]
        return None


def _refusal(tree: QueueTree, node: int, fact: BudgetNoted) -> Admission:
    of = f"{figure(fact.used)} of {figure(fact.amount)} {fact.unit}"
    used = f"{tree.label(node)} has used {of}"
    if fact.ends_at is None:
        sentence = f"{used}; more once the budget is raised"
    else:
        period = period_in_words(fact.period, fact.ends_at)
        sentence = f"{used} of {period}; more on {utc_date(fact.ends_at)}"
    return Admission(
        "refused",
        Gate.LIMIT,
        tree.label(node),
        fact.queue,
        fact.unit,
        used=fact.used,
        most=fact.amount,
        sentence=sentence,
    )
