"""The network between controller and cluster: orders one way, events the other, each possibly lost, late or doubled.

Nothing is lost for good: whoever gave an order gives it again as a standing order, and the cluster tells of an event
until it is settled, to a new leader at once (`adopt`). Events of one node arrive in their order. How likely a fault is
changes over a life (`trouble`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from gantree.model.events import Event
from gantree.model.orders import Order
from support.faults.clocks import Timeline
from support.faults.tally import Tally

CALM = 0.0
TOLD_AGAIN_S = 40.0
"""A lost event is told again after so long."""
SLOW_S = 25.0
LATE_COPY_S = 200.0
"""A second copy may come so late that its attempt has ended long since."""


@dataclass(slots=True)
class Trouble:
    """The share of orders and of events that meet a fault."""

    orders: float = CALM
    events: float = CALM


@dataclass(slots=True)
class Message:
    """An event under way to a controller."""

    at: float
    event: Event


@dataclass(slots=True, eq=False)
class OrderUnderWay:
    """An order under way to the cluster. It may be dropped with the node that it was for.

    Two copies of one order are two: compared by their fields, the one that arrives would take the other off the list.
    """

    order: Order
    dropped: bool = False


class Network:
    """Carries orders to arrive, and keeps events until a controller polls."""

    def __init__(
        self, timeline: Timeline, lots: Random, tally: Tally, arrive: Callable[[Order], None]
    ) -> None:
        self.trouble = Trouble()
        self._timeline, self._lots, self._tally = timeline, lots, tally
        self._arrive = arrive
        self._orders: list[OrderUnderWay] = []
        self._events: list[Message] = []

    # ----- orders

    def send(self, order: Order) -> None:
        """An order leaves a controller."""
        lots, tally = self._lots, self._tally
        if lots.random() >= self.trouble.orders:
            self._arrive(order)
            return
        fate = lots.choice(("lost", "doubled", "late", "late", "doubled late"))
        if fate == "lost":
            tally.came("order lost")
        elif fate == "late":
            tally.came("order late")
            self._later(order, lots.uniform(0.5, SLOW_S))
        else:
            tally.came("order doubled")
            self._arrive(order)
            self._later(order, 0.1 if fate == "doubled" else lots.uniform(SLOW_S, LATE_COPY_S))

    def _later(self, order: Order, delay_s: float) -> None:
        under_way = OrderUnderWay(order)
        self._orders.append(under_way)
        self._timeline.after(delay_s, lambda: self._arrived(under_way))

    def _arrived(self, under_way: OrderUnderWay) -> None:
        self._orders.remove(under_way)
        if not under_way.dropped:
            self._arrive(under_way.order)

    def drop_orders(self, job: str, attempt: int) -> None:
        """Orders for an attempt are lost with the node that had them."""
        for under_way in self._orders:
            if (under_way.order.job, under_way.order.attempt) == (job, attempt):
                under_way.dropped = True

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way to the cluster."""
        return not self._orders

    # ----- events

    def tell(self, event: Event, *, in_order: bool = False) -> None:
        """An event leaves the cluster. in_order: it must not overtake earlier ones, so it is never held up."""
        now, lots, tally = self._timeline.now, self._lots, self._tally
        if in_order or lots.random() >= self.trouble.events:
            self._put(now, event)
            return
        fate = lots.choice(("lost", "doubled", "late", "late", "doubled late"))
        if fate == "lost":
            tally.came("event lost")
            self._put(now + TOLD_AGAIN_S, event)
        elif fate == "late":
            tally.came("event late")
            self._put(now + lots.uniform(0.5, SLOW_S), event)
        else:
            tally.came("event doubled")
            self._put(now, event)
            self._put(
                now + (0.1 if fate == "doubled" else lots.uniform(SLOW_S, LATE_COPY_S)), event
            )

    def tell_again(self, event: Event) -> None:
        """A copy of an event arrives now."""
        self._put(self._timeline.now, event)

    def _put(self, at: float, event: Event) -> None:
        self._events.append(Message(at, event))

    def drop_events(self, is_dropped: Callable[[Event], bool]) -> None:
        """Events are lost for good, with all traces of what they tell."""
        self._events = [each for each in self._events if not is_dropped(each.event)]

    def arrived(self) -> Iterator[Event]:
        """Take the events that have arrived, oldest first."""
        now = self._timeline.now
        here = [each for each in self._events if each.at <= now]
        self._events = [each for each in self._events if each.at > now]
        return (each.event for each in sorted(here, key=lambda each: each.at))

    def next_in_s(self) -> float | None:
        """Seconds until the next event arrives; None if none is under way."""
        if not self._events:
            return None
        return max(0.0, min(each.at for each in self._events) - self._timeline.now)

    def forget_events(self) -> None:
        """What was under way to a controller that has died: the next one is told all anew."""
        self._events.clear()
