"""A decision in the making: facts are applied as they are recorded, orders are collected."""

from gantree.core.ledger.ledger import Ledger
from gantree.model.facts import Fact
from gantree.model.orders import Order


class DecisionBuilder:
    """What one call of `Scheduler.handle` has decided so far, at `now` seconds.

    moves_for are waiting jobs for which an operator wants gangs moved, once everything else is decided.
    """

    def __init__(self, ledger: Ledger, now: float) -> None:
        self.ledger = ledger
        self.now = now
        self.facts: list[Fact] = []
        self.orders: list[Order] = []
        self.moves_for: list[str] = []

    def record(self, *facts: Fact) -> None:
        """Decide: each fact holds from here on."""
        for fact in facts:
            self.ledger.apply(fact)
            self.facts.append(fact)

    def order(self, order: Order) -> None:
        """Tell the cluster, once the decision is durable."""
        self.orders.append(order)
