"""What every journal promises, whatever database it lives in.

The life of an event: `append_inbox` makes it durable (only then may anyone be told that it was taken), a turn
reads it with `read_inbox`, decides, and commits one transaction with `commit_turn`: how far it has read
(the cursor), the facts and the orders. After a crash the facts are folded and the inbox is read on from the
cursor, so nothing is decided twice and nothing is forgotten. `gantree.testing.journal_contract` holds the
tests that every implementation passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gantree.model.events import Event
from gantree.model.facts import Fact
from gantree.model.orders import Order


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """An event with its place in the inbox; seq grows by order of arrival and starts at 1."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class RecordedFact:
    """A fact with its place in the journal; seq starts at 1 and has no gaps."""

    seq: int
    fact: Fact


@dataclass(frozen=True, slots=True)
class SetAside:
    """An event that the scheduler could not handle, and the error it died of."""

    seq: int
    event: Event
    error: str


class Journal(Protocol):
    """Durable memory of one scheduler. All methods raise JournalError when the journal fails them."""

    def next_epoch(self) -> int:
        """Begin a leadership: return a number larger than every one before. It fences `commit_turn`."""
        ...

    def append_inbox(self, events: Sequence[Event]) -> None:
        """Make events durable, in order, before returning. An id that was ever appended is dropped.

        Raises BadInput for an event that cannot be written down (text that is no Unicode); then none is taken.
        """
        ...

    def seen(self, event_id: str) -> bool:
        """Whether an event of this id was ever appended."""
        ...

    def read_inbox(self, after_seq: int, limit: int) -> tuple[InboxEntry, ...]:
        """The first `limit` events after a place in the inbox, without those that were set aside."""
        ...

    def cursor(self) -> int:
        """The place in the inbox up to which turns have been committed; 0 at first."""
        ...

    def last_observed_at(self) -> float:
        """The largest `observed_at` of the inbox, in seconds; 0 when it is empty."""
        ...

    def commit_turn(
        self, cursor: int, facts: Sequence[Fact], orders: Sequence[Order], epoch: int
    ) -> None:
        """Record one turn in one transaction. Raises JournalError if another epoch has begun since."""
        ...

    def turns(self) -> int:
        """How many turns have been committed."""
        ...

    def facts(self, after: int = 0) -> Iterator[RecordedFact]:
        """All facts after a seq, oldest first, brought up to today's versions."""
        ...

    def orders(self, after: int = 0) -> Iterator[tuple[int, Order]]:
        """All orders after a seq with their seq, oldest first: what the cluster was told, for audits."""
        ...

    def set_aside(self, seq: int, error: str) -> None:
        """Take one event out of the way of `read_inbox` for ever, and keep the error beside it."""
        ...

    def all_set_aside(self) -> tuple[SetAside, ...]:
        """Everything that was set aside, oldest first."""
        ...

    def close(self) -> None:
        """Give the journal back; closing twice is the same as once."""
        ...
