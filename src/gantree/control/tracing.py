"""Spans of turns and requests, linked by causes: OpenTelemetry's API, which does nothing until an SDK is set up.

A request appends events within its span; the turn that decides about them links to those spans and names the events.
So a trace leads from a request to its turn and back, though a turn serves many requests. The SDK is set up in
`gantree.api.observability.tracing_setup`.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Tracer

from gantree import __version__
from gantree.journal.contract import InboxEntry
from gantree.model.events import Event

CAUSES_KEPT = 10_000
"""Spans of so many events are kept for the turn that will come to them."""
EVENTS_NAMED = 32
"""So many ids of events stand on one span."""


class Causes:
    """Which span handed an event in. Bounded: the oldest are forgotten."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self.tracer = tracer or trace.get_tracer("gantree", __version__)
        self._span_of_event: OrderedDict[str, SpanContext] = OrderedDict()
        self._lock = Lock()

    def remember(self, events: Sequence[Event]) -> None:
        """Record the current span as the cause of these events."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return
        with self._lock:
            for event in events:
                self._span_of_event[event.id] = context
            while len(self._span_of_event) > CAUSES_KEPT:
                self._span_of_event.popitem(last=False)

    def links(self, batch: Sequence[InboxEntry]) -> list[Link]:
        """Links to the spans that handed these in, each once for each event; they are forgotten."""
        with self._lock:
            found = [
                (entry.event.id, self._span_of_event.pop(entry.event.id, None)) for entry in batch
            ]
        return [Link(context, {"gantree.event": event}) for event, context in found if context]

    @contextmanager
    def turn(
        self, batch: Sequence[InboxEntry], began_ns: int, read_ns: int, epoch: int
    ) -> Iterator[Span]:
        """The span of a turn, a trace of its own: what asked for it may wait for other turns too."""
        named = [entry.event.id for entry in batch[:EVENTS_NAMED]]
        span = self.tracer.start_span(
            "turn",
            context=Context(),
            links=self.links(batch),
            start_time=began_ns,
            attributes={
                "gantree.events": named,
                "gantree.events.count": len(batch),
                "gantree.epoch": epoch,
            },
        )
        with trace.use_span(span, end_on_exit=True):
            self.tracer.start_span("read inbox", start_time=began_ns).end(read_ns)
            yield span

    @contextmanager
    def step(self, name: str) -> Iterator[Span]:
        """A step of a turn: decide, commit, send orders."""
        with self.tracer.start_as_current_span(name) as span:
            yield span
