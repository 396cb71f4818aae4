"""The one seam: a batch of events in, a decision out. Everything that waits, fails or talks is a driver.

`handle` is a pure function of the ledger and the batch: no clock (time is the last event's observed_at), no
randomness, no files. Two drivers use it alike: the simulator's heap and `control.turn`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gantree.core.cycle.cycle import Cycle
from gantree.core.events.reactions import react
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.lifecycle.budgets import BudgetReviews
from gantree.core.lifecycle.launch import standing_orders
from gantree.core.lifecycle.lending import review_lending
from gantree.core.lifecycle.lifecycle import time_is_up
from gantree.core.lifecycle.time_slicing import TimeSlicer
from gantree.core.lifecycle.timers import Timers
from gantree.core.services.reconcile import reconcile
from gantree.model.cluster import Cluster
from gantree.model.events import Event, TimePassed
from gantree.model.facts import Fact
from gantree.model.orders import Order
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.policy.rules import Policy
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Decision:
    """Facts to record, orders to carry out after that, and the latest time of the next call."""

    facts: tuple[Fact, ...]
    orders: tuple[Order, ...]
    wake_at: float | None


class Scheduler:
    """The decision core around one ledger."""

    def __init__(self, policy: Policy, ledger: Ledger | None = None, now: float = 0.0) -> None:
        """With a ledger it goes on from there, at that moment."""
        self.policy = policy
        self.ledger = Ledger(policy) if ledger is None else ledger
        self._now = now
        self.recover(())

    @classmethod
    def of(cls, ledger: Ledger, now: float) -> "Scheduler":
        """Return a scheduler on a ledger at a given time."""
        return cls(ledger.policy, ledger, now)

    @property
    def now(self) -> float:
        """The time of the last decision, in seconds."""
        return self._now

    def recover(self, facts: Iterable[Fact]) -> None:
        """Fold recorded facts into the ledger, without deciding again."""
        for fact in facts:
            self.ledger.apply(fact)
            self._now = max(self._now, fact.at)
        self._cycle = Cycle(self.policy, placement_preferences_of(self.policy))
        self._timers = Timers(self.ledger, self._now)
        self._turns = TimeSlicer(self.ledger, self.policy, self._now)
        self._budgets = BudgetReviews(self.ledger, self._now)

    def handle(self, events: Sequence[Event]) -> Decision:
        """Decide on a batch of events and update the ledger.

        observed_at must not decrease, within a batch and between batches. An AssertionError is a bug: then the
        scheduler must be thrown away and rebuilt from the recorded facts.
        """
        builder = DecisionBuilder(self.ledger, self._now)
        for event in events:
            assert event.observed_at >= builder.now, f"{event.id} was observed before {builder.now}"
            builder.now = event.observed_at
            react(builder, event, self.policy)
        self._now = builder.now
        for state in self._timers.take_due(builder.now):
            time_is_up(builder, state, self.policy)
        reconcile(builder, self.policy)
        self._budgets.review_due(builder)
        review_lending(builder)
        self._cycle.run(builder)
        review_lending(builder)
        self._turns.update(builder)
        self._watch(builder)
        return Decision(tuple(builder.facts), tuple(builder.orders), self.wake_at())

    def _watch(self, builder: DecisionBuilder) -> None:
        """Set the timers of all jobs that this decision changed."""
        touched = dict.fromkeys(getattr(fact, "job", None) for fact in builder.facts)
        for job in touched:
            state = None if job is None else self.ledger.jobs.get(job)
            if state is not None:
                self._timers.watch(state, builder.now)
        self._budgets.update(builder)

    def wake_at(self) -> float | None:
        """The next time at which time alone may change a decision, in seconds; None if there is none."""
        moments = (
            self._timers.next_moment(),
            self._cycle.wake_at(self.ledger, self._now),
            self._turns.wake_at(),
            self._budgets.next_moment(),
            self.ledger.accounts.lending.next_moment(self._now),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def standing_orders(self) -> tuple[Order, ...]:
        """Return the orders that are in force now; repeating one has no effect."""
        return tuple(
            order for state in self.ledger.holding.values() for order in standing_orders(state)
        )

    def conflicts(self, cluster: Cluster) -> tuple[str, ...]:
        """Jobs that run where this other description of the site has nothing for them, in words.

        Raises BadInput for a description that contradicts itself.
        """
        site, conflicts = Occupancy(Fabric.build(cluster)), []
        for state in self.ledger.holding.values():
            assert state.placement is not None
            missing = site.missing(state.placement.members)
            if missing:
                conflicts.append(f"{state.job} runs, and {missing}")
            else:
                site.take(state.job, state.placement.members)
        return tuple(conflicts)


def settled(scheduler: Scheduler, events: Sequence[Event], now: float) -> Decision:
    """Return all decisions at one time: on a batch, and on the continuations that the scheduler requests."""
    decision = scheduler.handle(events)
    facts, orders = list(decision.facts), list(decision.orders)
    while decision.wake_at is not None and decision.wake_at <= now:
        decision = scheduler.handle([TimePassed(id="again", observed_at=now)])
        facts += decision.facts
        orders += decision.orders
    return Decision(tuple(facts), tuple(orders), decision.wake_at)
