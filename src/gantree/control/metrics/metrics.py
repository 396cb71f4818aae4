"""The daemon's own metrics: their names, and the registry that holds them. What is read of a ledger is in `figures`.

One registry a daemon, none shared by the process, so that two of them in one test do not mix. Base units, `_total` for
what is counted, and labels of few values: kinds, causes, gates, tiers, queues of the policy, routes; never a job.
Counters and histograms are fed where things happen, from any thread; figures of the ledger are handed in as a whole.
docs/observability.md has the table.
"""

import re
from collections import Counter as Counted
from collections.abc import Iterable, Sequence
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from gantree import __version__
from gantree.accounting.usage import UsageChange
from gantree.control.metrics.ledger_metrics import LedgerCollector, LedgerSample
from gantree.model.events import EVENTS, Event
from gantree.model.fact_kinds import FACTS
from gantree.model.facts import (
    AttemptEnded,
    Fact,
    GangMoving,
    GangPreempted,
    ReservationDropped,
    ReservationMade,
)
from gantree.model.orders import ORDERS, Order

TURN_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""From a turn that places one gang in an idle cluster to one that holds everything up."""


HTTP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 60)


EVICTIONS = ("priority", "order", "reclaim", "resized", "moved")


COLUMN_OF_PURPOSE = {
    "capacity": "capacity_gpu_s", "allocated": "allocated_gpu_s", "starting": "starting_gpu_s",
    "restart": "restart_gpu_s", "checkpoint": "checkpoint_gpu_s", "useful": "useful_gpu_s", "idle": "idle_gpu_s",
    "lost": "lost_gpu_s", "down": "down_gpu_s", "claimed": "held_gpu_s", "reserved": "reserved_gpu_s",
    "stranded": "stranded_gpu_s",
}  # fmt: skip
"""Purposes of the book, and their columns."""


SLIPS = {
    "node-lost": r"node \S+ was lost",
    "late": r".* (runs longer than it was to|began later than it was to|is late to leave)",
    "taken": r"\S* went first",
    "quota": "its queue does not admit it",
    "cluster-changed": "the cluster has changed",
    "passed-on": r"\S+ goes first",
}
"""Cause -> the reasons of `ReservationDropped` that say so. What started, ended or is held by hand did not slip."""


NO_SLIP = ("it starts", "the job has ended", "the job is held")


class Metrics:
    """Everything that a daemon counts and measures of itself."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        build = Info("gantree_build", "The program that answers.", registry=registry)
        build.info({"version": __version__})
        self._ledger = LedgerCollector()
        registry.register(self._ledger)

        self.leading = Gauge(
            "gantree_leading", "1 while this daemon leads, 0 while it stands by.", registry=registry
        )

        self._count_turns()
        self._count_causes()
        self._count_requests()
        self._count_stragglers()

    def _count_turns(self) -> None:
        self.decision = self._histogram(
            "gantree_decision_seconds", "Time to decide about one batch of events."
        )
        self.turn = self._histogram(
            "gantree_turn_seconds", "One turn: read the inbox, decide, commit, send the orders."
        )
        self.commit = self._histogram(
            "gantree_journal_commit_seconds", "One transaction of the journal.", ["transaction"]
        )
        for transaction in ("inbox", "turn"):
            self.commit.labels(transaction)
        self.events = self._counter("gantree_events", "Events decided about.", "kind", EVENTS)
        self.facts = self._counter("gantree_facts", "Facts recorded.", "kind", FACTS)
        self.orders = self._counter("gantree_orders", "Orders sent.", "kind", ORDERS)
        self.set_aside = Counter(
            "gantree_events_set_aside",
            "Events that broke the scheduler, since this process started.",
            registry=self.registry,
        )
        self.id_reused = Counter(
            "gantree_events_id_reused",
            "Events of the cluster that were lost, as they had ids of other events.",
            registry=self.registry,
        )
        self.failed_steps = Counter(
            "gantree_steps_failed",
            "Steps that the world forbade (a full disk), each tried again.",
            registry=self.registry,
        )

    def _count_causes(self) -> None:
        self.evictions = self._counter(
            "gantree_evictions", "Attempts told to leave for others, or moved.", "cause", EVICTIONS
        )
        self.told = self._counter(
            "gantree_reservations_told",
            "Starts told to waiting jobs, new or better ones.",
            "kind",
            ("promised", "estimated"),
        )
        self.slipped = self._counter(
            "gantree_reservations_slipped",
            "Starts told that do not stand any more, by what happened.",
            "cause",
            (*SLIPS, "other"),
        )
        self.gpu_s = self._counter(
            "gantree_gpu_seconds", "GPU time as the book counts it.", "purpose", COLUMN_OF_PURPOSE
        )
        self.gpu_s_lost = Counter(
            "gantree_gpu_seconds_lost", "Work that must be done again.", registry=self.registry
        )

    def _count_requests(self) -> None:
        self.connections_ended = Counter(
            "gantree_connections_ended",
            "Connections that the daemon ended or refused: too slow, or over a limit.",
            ["listener", "cause"],
            registry=self.registry,
        )
        for listener, cause in product(("tcp", "socket"), ("timed out", "gave way", "refused")):
            self.connections_ended.labels(listener, cause)
        self.notifications = Counter(
            "gantree_notifications",
            "Tries to send a notification of a job, and those given up.",
            ["channel", "outcome"],
            registry=self.registry,
        )
        self.http = self._histogram(
            "gantree_http_request_seconds",
            "From a request to the head of its answer.",
            ["route"],
            HTTP_BUCKETS_S,
        )
        self.http_requests = Counter(
            "gantree_http_requests",
            "Requests answered.",
            ["route", "status"],
            registry=self.registry,
        )
        self.open_streams = Gauge(
            "gantree_http_open_streams",
            "Answers that are being sent as they come: events, facts, logs.",
            ["route"],
            registry=self.registry,
        )

    def _count_stragglers(self) -> None:
        self.stragglers = Gauge(
            "gantree_stragglers",
            "Ranks that are slower than their peers (slow), vary more (jitter), or whose GPU has a low clock (clock).",
            ["sign"],
            registry=self.registry,
        )
        for sign in ("slow", "jitter", "clock"):
            self.stragglers.labels(sign)

    def _counter(self, name: str, text: str, label: str, values: Iterable[str]) -> Counter:
        """A counter that is there with all its values from the start, so that rates are right from the first one on."""
        made = Counter(name, text, [label], registry=self.registry)
        for value in values:
            made.labels(value)
        return made

    def _histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = TURN_BUCKETS_S,
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    @property
    def sample(self) -> "LedgerSample | None":
        """The figures that were taken last; None before the first."""
        return self._ledger.sample

    def set_sample(self, sample: "LedgerSample") -> None:
        """From now on these are the figures of the ledger."""
        self._ledger.sample = sample

    def decided(self, events: Sequence[Event], facts: Sequence[Fact]) -> None:
        """Count what one turn has decided, once that is durable."""
        for kind, often in Counted(map(type, events)).items():
            self.events.labels(kind.__name__).inc(often)
        for kind, often in Counted(map(type, facts)).items():
            self.facts.labels(kind.__name__).inc(often)
        for fact in facts:
            self._of_fact(fact)

    def used(self, change: UsageChange | None) -> None:
        """Count what a turn has added to the book; a counter does not see what is taken out of it."""
        for amounts in () if change is None else change.usage.values():
            for purpose, column in COLUMN_OF_PURPOSE.items():
                amount = getattr(amounts, column)
                if amount > 0.0:
                    self.gpu_s.labels(purpose).inc(amount)

    def sent(self, orders: Iterable[Order]) -> None:
        """Count orders that the cluster took."""
        for kind, often in Counted(map(type, orders)).items():
            self.orders.labels(kind.__name__).inc(often)

    def _of_fact(self, fact: Fact) -> None:
        match fact:
            case GangPreempted() | GangMoving():
                self.evictions.labels(str(fact.cause)).inc()
            case AttemptEnded():
                self.gpu_s_lost.inc(fact.gpu_s_lost)
            case ReservationMade():
                self.told.labels("promised" if fact.promised else "estimated").inc()
            case ReservationDropped() if fact.reason not in NO_SLIP:
                self.slipped.labels(slip_cause(fact.reason)).inc()


def slip_cause(reason: str) -> str:
    """Return the cause in a reason of `ReservationDropped`."""
    for cause, pattern in SLIPS.items():
        if re.fullmatch(pattern, reason):
            return cause
    return "other"
