"""Retention: removes ended jobs from memory and old facts from the journal, a few at a time.

An event says how many ended jobs to keep; the core decides which ones to forget. Facts are deleted once a snapshot
covers them, in transactions of a turn's length.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from gantree.core.ledger.ledger import Ledger
from gantree.journal.contract import Journal
from gantree.model.events import EndedJobsDue

KEEP_ENDED = 10_000
SETTLED_S = 600.0
"""An ended job is kept at least so long: its executor may still report on it."""
SLACK = 0.05
"""Jobs are forgotten in batches: once there are so many more than the limit, as a share of it."""
PIECE = 5_000
"""Facts deleted in one transaction."""
PIECE_EVERY_S = 1.0
REST_S = 60.0
"""Pause after an event that forgot nothing: other jobs depend on all of them (`after`)."""
CHECK_EVERY_S = 600.0
"""How often the age of facts is checked."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How many ended jobs are kept, the newest ones, and for how many seconds facts are; None: for ever."""

    ended: int = KEEP_ENDED
    history_s: float | None = None


DEFAULT_RETENTION = RetentionLimits()


class Retention:
    """Applies the limits during one leadership. All methods are called from the controller's thread."""

    def __init__(self, journal: Journal, epoch: int, keep: RetentionLimits) -> None:
        self._journal, self._epoch, self._keep = journal, epoch, keep
        self._forget_events = 0
        self._goal = 0
        self._piece = PIECE
        self._next_check_at = self._next_piece_at = self._next_due_at = 0.0
        self._forgotten = (-1, -1)

    def due(self, ledger: Ledger, now: float) -> EndedJobsDue | None:
        """The event that lets jobs be forgotten, if there are enough; after one without effect not before REST_S."""
        if now < self._next_due_at:
            return None
        keep, before = self._keep.ended, now - SETTLED_S
        if not any(
            count > keep + SLACK * keep and oldest < before for count, oldest in _over(ledger)
        ):
            return None
        forgotten = ledger.forgotten, ledger.forgotten_rejected
        in_vain, self._forgotten = forgotten == self._forgotten, forgotten
        self._next_due_at = now + (REST_S if in_vain else PIECE_EVERY_S)
        self._forget_events += 1
        event_id = f"ended-jobs-due/{self._epoch}.{self._forget_events}"
        return EndedJobsDue(id=event_id, observed_at=now, keep=keep, ended_before=before)

    def compact(self, now: float) -> None:
        """Delete one piece of the facts that are too old, if it is due. Raises JournalError."""
        if self._keep.history_s is None or now < self._next_piece_at:
            return
        self._next_piece_at = now + PIECE_EVERY_S
        if now >= self._next_check_at:
            self._next_check_at = now + CHECK_EVERY_S
            self._goal = self._journal.facts_before(now - self._keep.history_s)
        gone = self._journal.compacted_to()
        if gone >= self._goal:
            return
        deleted = self._journal.compact(min(self._goal, gone + self._piece), self._epoch)
        if deleted.facts:
            self._piece = PIECE
        elif gone + self._piece < self._goal:
            self._piece *= 2  # one turn has more facts than a piece
        else:
            self._goal = 0  # no snapshot covers more; look again later
        log.debug("compacted %d facts, %d events", deleted.facts, deleted.events)


def _over(ledger: Ledger) -> Iterator[tuple[int, float]]:
    """How many jobs have ended, and how many were rejected, each with the moment of the oldest of them."""
    if ledger.ended and ledger.ended[0].ended_at is not None:
        yield len(ledger.ended), ledger.ended[0].ended_at
    if ledger.rejected:
        yield len(ledger.rejected), ledger.rejected_at.get(next(iter(ledger.rejected)), 0.0)
