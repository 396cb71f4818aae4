"""The only writer of the inbox. It keeps `observed_at` monotone and loses no event.

`append` returns once events are durable. The cluster calls `enqueue` from any thread, and the next `flush` appends what
is queued. An event leaves the queue only after the journal has it, so a full disk delays events and loses none. Only
one that has the id of another event on record, which is a bug of its source, is lost, loudly.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gantree.control.metrics.metrics import Metrics
from gantree.control.tracing import Causes
from gantree.journal.contract import Journal
from gantree.model.errors import EventIdReused
from gantree.model.events import Event

log = logging.getLogger(__name__)


class InboxWriter:
    """Stamps events and appends them to the inbox of a journal. Calls `wake` when there is something to flush."""

    def __init__(
        self,
        journal: Journal,
        epoch: int,
        wake: Callable[[], None],
        metrics: Metrics | None = None,
        causes: Causes | None = None,
    ) -> None:
        """epoch is the leader's, under which events are appended; metrics and causes get each event."""
        self._journal = journal
        self._epoch = epoch
        metrics = metrics or Metrics()
        self._commit, self._id_reused = metrics.commit.labels("inbox"), metrics.id_reused
        self._causes = causes or Causes()
        self._wake = wake
        self._queued: deque[Event] = deque()
        self._last_observed_at = journal.last_observed_at()

    def enqueue(self, event: Event) -> None:
        """Take an event that its source will tell again after a crash; safe from any thread."""
        self._queued.append(_writable(event))
        if len(self._queued) == 1:  # else whoever flushes is yet to come to this one
            self._wake()

    @property
    def unflushed(self) -> int:
        """Events that were emitted and are not in the inbox yet; safe from any thread."""
        return len(self._queued)

    def flush(self) -> bool:
        """Append emitted events; return whether there were any."""
        queued = tuple(self._queued)
        if queued:
            self._append_emitted(queued)
        for _ in queued:
            self._queued.popleft()
        return bool(queued)

    def _append_emitted(self, queued: Sequence[Event]) -> None:
        """An event with the id of another is lost, as whoever emitted it would only repeat it."""
        try:
            self._append(queued, self._journal.append_emitted)
        except EventIdReused as error:
            log.critical("bug: events of the cluster were %s", error)
            self._id_reused.inc(len(error.events))

    def append(self, events: Sequence[Event]) -> None:
        """Make events durable before returning. Raises JournalError, and BadInput for unwritable text."""
        self._append(events, self._journal.append_inbox)

    def _append(
        self, events: Sequence[Event], keep: Callable[[Sequence[Event], int], None]
    ) -> None:
        """Hand stamped events to a method of the journal."""
        stamped, last = [], self._last_observed_at
        for event in events:
            last = max(last, event.observed_at)
            is_late = event.observed_at < last
            stamped.append(replace(event, observed_at=last) if is_late else event)
        self._causes.remember(events)
        self._last_observed_at = last  # also if that fails: it may be in the journal all the same
        with self._commit.time():
            keep(stamped, self._epoch)


def _writable(event: Event) -> Event:
    """Reasons may quote file names that are no Unicode; the odd bytes become question marks."""
    reason: Any = getattr(event, "reason", None)
    if reason is None or reason.isascii():
        return event
    readable: Any = {"reason": reason.encode(errors="replace").decode()}
    return replace(event, **readable)
