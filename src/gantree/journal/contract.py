"""The contract of every journal, whatever its database.

The life of an event: `append_inbox` makes it durable (only then may anyone be told that it was taken), a turn
reads it with `read_inbox`, decides, and commits one transaction with `commit_turn`: how far it has read
(the cursor), the facts and the orders. After a crash the facts are folded and the inbox is read on from the
cursor, so nothing is decided twice and nothing is forgotten. `gantree.testing.journal_contract` holds the
tests that every implementation passes.

One process leads at a time. Every write names the leader's epoch and is refused, inside its own transaction, once
another epoch has begun: a leader that was paused and wakes up later changes nothing. Reading needs no leadership.

A snapshot stands for all facts up to its seq. What its text says is not known here; it comes back letter for letter,
or not at all. What a snapshot covers may be deleted by `compact`; the ids of deleted events stay refused.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gantree.accounting.buckets import Bucket
from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.accounting.ended_jobs import JobSearch, RecordedJob, Scope
from gantree.accounting.ended_use import EndedUse
from gantree.accounting.usage import CountedTo, UsageAmounts, UsageKey, UsageQuery, WaitAmounts
from gantree.model.events import Event
from gantree.model.facts import Fact
from gantree.model.orders import Order
from gantree.model.values import quick

LONGEST_LEASE_S = 30.0
"""No daemon leads for longer than this without a renewal."""


@quick
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the facts up to seq come to, at the end of a turn. cursor and turns are the journal's at that moment."""

    seq: int
    cursor: int
    turns: int
    text: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many rows were deleted (of events: emptied) because a snapshot covers them."""

    facts: int
    orders: int
    events: int


class Election(Protocol):
    """Leadership. All methods raise JournalError if the database does not answer."""

    def lead(self, holder: str, for_s: float) -> int | None:
        """Begin a new, larger epoch; None if another daemon leads and its lease is valid.

        holder is who leads, for people. The lease runs by the database's clock. A journal that only one process can
        have open is led by whoever has: there it never runs out, and never keeps anybody away.
        """
        ...

    def renew(self, epoch: int, for_s: float) -> bool:
        """Let the lease run for so long from now on; False if the epoch is over."""
        ...

    def resign(self, epoch: int) -> None:
        """End the epoch, so that another may begin at once. Nothing happens if it is over already."""
        ...

    def leader(self) -> tuple[int, str | None]:
        """Return the newest epoch (0 before the first) and its leader; None if it resigned.

        Whether its lease has run out is not said: until another begins, that leader may go on.
        """
        ...


class History(Protocol):
    """What is on record over time: ended jobs, use, waits. It outlives compaction. All methods raise JournalError."""

    def ended_job(self, job: str) -> RecordedJob | None:
        """The ended job of an id."""
        ...

    def ended_jobs(self, search: JobSearch, before: int | None, limit: int) -> list[RecordedJob]:
        """The ended jobs that a search finds, the last that ended first; before: of those that ended before a seq."""
        ...

    def usage(self, query: UsageQuery) -> list[tuple[Bucket, str, UsageAmounts]]:
        """(step, name, amounts) of each step in which there is something, in order. Capacity has no queue and user.

        A bucket that is wider than a step is what there is of its time.
        """
        ...

    def totals(self, query: UsageQuery) -> list[tuple[str, str, str, UsageAmounts]]:
        """(name, GPU model, device, amounts) of a whole period, whose ends are those of days: what was held, and waits.

        The step of the query is not read.
        """
        ...

    def capacity(self, since: int, until: int) -> UsageAmounts:
        """The capacity of a period, what of it was allocated, and what the rest was for; the ends are those of days."""
        ...

    def ended_use(
        self, since: float, until: float, scopes: tuple[Scope, ...], limit: int
    ) -> EndedUse:
        """What jobs used in their lives that were there in a period and have ended; limit: of the largest."""
        ...

    def book(
        self, since: int, until: int, step: int
    ) -> list[tuple[Bucket, UsageKey, UsageAmounts]]:
        """(bucket, key, amounts) of each step of a period and key in which there is something, in order.

        since and until are whole days. A bucket that is wider than a step is what there is of its time.
        """
        ...

    def waits(self, query: UsageQuery) -> list[tuple[int, str, int, WaitAmounts]]:
        """(start, name, bin, amounts) of each step in which there is something, in order."""
        ...

    def counted_to(self) -> CountedTo:
        """Up to which moments use is counted."""
        ...

    def rebuild_after(self) -> int | None:
        """The seq of the fact after which the history is to be made from facts again; None: it is complete."""
        ...


class Journal(Election, Protocol):
    """Durable memory of one scheduler. All methods raise JournalError when the journal fails them.

    What takes an epoch raises JournalError, and has changed nothing, if another one has begun or this one was resigned.
    """

    @property
    def history(self) -> History:
        """What is on record over time."""
        ...

    def append_inbox(self, events: Sequence[Event], epoch: int) -> None:
        """Make events durable, in order, before returning. An event that was ever appended is dropped.

        Raises BadInput for an event that cannot be written down (text that is no Unicode), and EventIdReused for one
        whose id was ever appended with other content; then none is taken. When it was seen, or happened, is no content;
        of an event that was compacted only its kind is known.
        """
        ...

    def append_emitted(self, events: Sequence[Event], epoch: int) -> None:
        """As above, for events that their source repeats: they may be lost in a crash until a turn is committed.

        So a turn waits for the disk once. Where it raises EventIdReused, the other events are taken.
        """
        ...

    def seen(self, event_ids: Collection[str]) -> frozenset[str]:
        """Which of these ids an event that was ever appended had."""
        ...

    def event(self, event_id: str) -> Event | None:
        """The event of this id; None where there was none, or where it was compacted."""
        ...

    def place_of(self, event_id: str) -> int | None:
        """The place in the inbox of the event of this id, also of one that was compacted; None where there was none."""
        ...

    def read_inbox(self, after_seq: int, limit: int) -> tuple[InboxEntry, ...]:
        """The first `limit` events after a place in the inbox, without those that were set aside.

        Raises JournalError for events that were compacted.
        """
        ...

    def cursor(self) -> int:
        """The place in the inbox up to which turns have been committed; 0 at first."""
        ...

    def backlog(self) -> int:
        """How many events no turn has come to yet, without those that were set aside."""
        ...

    def last_observed_at(self) -> float:
        """The largest `observed_at` of the inbox, in seconds; 0 when it is empty."""
        ...

    def commit_turn(
        self,
        cursor: int,
        facts: Sequence[Fact],
        orders: Sequence[Order],
        epoch: int,
        history: HistoryChange = NO_CHANGE,
    ) -> None:
        """Record one turn, and what it adds to the history, in one transaction."""
        ...

    def rebuild_history(self, change: HistoryChange, rebuild_after: int | None, epoch: int) -> None:
        """Add to the history apart from turns; indexes count all facts, from 0. rebuild_after: as `History` has it."""
        ...

    def turns(self) -> int:
        """How many turns have been committed."""
        ...

    def last_epoch(self) -> int:
        """The epoch of the newest turn; 0 before the first."""
        ...

    def facts(self, after: int = 0) -> Iterator[RecordedFact]:
        """All facts after a seq, oldest first, brought up to today's versions.

        Raises JournalError where one is missing, also where it was compacted: see `compacted_to`.
        """
        ...

    def turn_ends(self, after: int = 0) -> Iterator[int]:
        """The seqs of the last facts of turns, those after a seq, oldest first."""
        ...

    def last_fact(self) -> int:
        """The seq of the newest fact; 0 before the first."""
        ...

    def facts_of(self, kind: type[Fact], after: int = 0) -> Iterator[RecordedFact]:
        """The facts of one kind after a seq that were not compacted, oldest first, brought up to today's version.

        Reads all facts after that seq.
        """
        ...

    def facts_about(self, job: str, after: int, to: int) -> Iterator[RecordedFact]:
        """The facts about one job, array or service after a seq, up to another, that are there, oldest first."""
        ...

    def compacted_to(self) -> int:
        """The seq up to which facts were compacted; 0 if all are there."""
        ...

    def facts_before(self, at: float) -> int:
        """The seq of the newest fact of turns that came to nothing but events observed before a moment; 0 for none."""
        ...

    def orders(self, after: int = 0) -> Iterator[tuple[int, Order]]:
        """Yield (seq, order) after a seq, oldest first, for audits."""
        ...

    def set_aside(self, seq: int, error: str, epoch: int) -> None:
        """Take one event out of the way of `read_inbox` for ever, and keep the error beside it."""
        ...

    def all_set_aside(self) -> tuple[SetAside, ...]:
        """Everything that was set aside, oldest first."""
        ...

    def save_snapshot(self, snapshot: Snapshot, epoch: int) -> None:
        """Keep a snapshot of the end of a turn, and the one before it, and no older ones.

        Raises JournalError if the journal has another end for that turn.
        """
        ...

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot that is undamaged; None if there is none and all facts are there.

        Raises JournalError if facts were compacted and no snapshot that covers them is readable.
        """
        ...

    def snapshot_seq(self) -> int:
        """The seq of the newest snapshot, which is not read; 0 where there is none."""
        ...

    def compact(self, keep_after_seq: int, epoch: int) -> Compacted:
        """Delete whole turns whose facts end at keep_after_seq or before: their facts, orders and events.

        Only what the newest readable snapshot covers is deleted; without one, nothing. Events that were set aside and
        the ids of all events stay.
        """
        ...

    def check_place(self) -> None:
        """Raises JournalError where what is recorded would go to a place that nobody finds again. Takes no time."""
        ...

    def check_writable(self) -> None:
        """Write something durable that changes nothing. Raises JournalError where that cannot be done."""
        ...

    def close(self) -> None:
        """Give the journal back; closing twice is the same as once."""
        ...
