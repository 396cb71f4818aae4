"""Telemetry of turns: durations, counts, spans, and the context of log lines. It changes no turn.

`TurnRunner` calls it in the order: turn, decide, commit, send. Within a call every log line on the controller's thread,
also of the executor, carries turn and epoch, and within an order job, attempt and cause.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

from structlog.contextvars import bind_contextvars, bound_contextvars

from gantree.control.metrics.metrics import Metrics
from gantree.control.tracing import Causes
from gantree.core.lifecycle import idleness
from gantree.core.scheduler import Decision
from gantree.journal.contract import InboxEntry
from gantree.model.budget_facts import BudgetNoted
from gantree.model.idle_facts import GangIdleWarned, GangReclaimed
from gantree.model.orders import Order
from gantree.policy.budgets import noted_in_words

STANDING = "standing"
"""The cause of an order that is sent again."""

log = logging.getLogger(__name__)


class TimePoint(NamedTuple):
    """A point in time for a span (nanoseconds since 1970) and for a measurement (monotonic seconds)."""

    wall_ns: int
    steady_s: float

    @classmethod
    def now(cls) -> Self:
        """Now."""
        return cls(time.time_ns(), time.perf_counter())


class TurnTelemetry:
    """Telemetry of the turns of one epoch. turn is the number of the current turn, or of the last."""

    def __init__(self, metrics: Metrics, causes: Causes, epoch: int, turns: int) -> None:
        """turns: the number of turns in the journal."""
        self.metrics, self.causes = metrics, causes
        self._epoch, self.turn = epoch, turns

    @contextmanager
    def turning(self, batch: Sequence[InboxEntry], began: TimePoint) -> Iterator[None]:
        """Wrap the turn of a batch whose reading began at a point in time."""
        with (
            bound_contextvars(epoch=self._epoch),
            self.causes.turn(batch, began.wall_ns, time.time_ns(), self._epoch),
        ):
            yield
        self.metrics.turn.observe(time.perf_counter() - began.steady_s)

    @contextmanager
    def deciding(self, batch: Sequence[InboxEntry]) -> Iterator[None]:
        """Wrap the decision."""
        with (
            self.causes.step("decide") as span,
            bound_contextvars(turn=self.turn + 1, cause=batch[-1].event.id),
            self.metrics.decision.time(),
        ):
            span.set_attribute("gantree.events.count", len(batch))
            yield

    @contextmanager
    def committing(self, batch: Sequence[InboxEntry], decision: Decision) -> Iterator[None]:
        """Wrap the commit; the decision is counted once it has succeeded."""
        with (
            self.causes.step("commit") as span,
            self.metrics.commit.labels("turn").time(),
        ):
            span.set_attributes(
                {"gantree.facts": len(decision.facts), "gantree.orders": len(decision.orders)}
            )
            yield
        self.turn += 1
        self.metrics.decided([entry.event for entry in batch], decision.facts)
        for fact in decision.facts:
            if isinstance(fact, BudgetNoted):
                log.warning("%s", noted_in_words(fact), extra={"turn": self.turn})
            elif isinstance(fact, GangIdleWarned | GangReclaimed):
                log.warning("%s", idleness.noted_in_words(fact), extra={"turn": self.turn})
        log.debug(
            "turn: events %d, facts %d, orders %d",
            len(batch),
            len(decision.facts),
            len(decision.orders),
            extra={"turn": self.turn, "cause": batch[-1].event.id},
        )

    @contextmanager
    def sending(self, orders: Sequence[Order]) -> Iterator[None]:
        """Wrap the sending of a turn's orders."""
        with self.causes.step("send orders") as span, bound_contextvars(turn=self.turn):
            span.set_attribute("gantree.orders", [order.id for order in orders[:32]])
            yield

    def each(self, orders: Sequence[Order], cause_of: Callable[[Order], str]) -> Iterator[Order]:
        """Yield the orders; until the next one log lines carry the context of this one."""
        with bound_contextvars(job="", attempt=0, cause="", epoch=self._epoch):
            for order in orders:
                cause = cause_of(order)
                bind_contextvars(job=order.job, attempt=order.attempt, cause=cause)
                level = logging.DEBUG if cause == STANDING else logging.INFO
                log.log(level, "order %s: %s", order.id, type(order).__name__)
                yield order


def causes_of(batch: Sequence[InboxEntry]) -> Callable[[Order], str]:
    """The cause of an order: the newest event of the batch about its job, else the newest event."""
    event_of_job = {
        job: entry.event.id
        for entry in batch
        if (job := getattr(entry.event, "job", None)) is not None
    }
    return lambda order: event_of_job.get(order.job, batch[-1].event.id)
