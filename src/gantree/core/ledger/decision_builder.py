"""Builds a decision: applies facts as they are recorded, and collects orders."""

from gantree.core.ledger.ledger import Ledger
from gantree.model.events import DefragmentRequested
from gantree.model.facts import Fact
from gantree.model.orders import Order


class DecisionBuilder:
    """The facts and orders of one call of `Scheduler.handle` so far, at `now` seconds.

    moves_for are an operator's requests to move gangs for jobs that wait.
    """

    def __init__(self, ledger: Ledger, now: float) -> None:
        self.ledger = ledger
        self.now = now
        self.facts: list[Fact] = []
        self.orders: list[Order] = []
        self.moves_for: list[DefragmentRequested] = []

    def record(self, *facts: Fact) -> None:
        """Record facts and apply each to the ledger at once."""
        for fact in facts:
            self.ledger.apply(fact)
            self.facts.append(fact)

    def order(self, order: Order) -> None:
        """Add an order, which goes to the cluster once the decision is durable."""
        self.orders.append(order)
