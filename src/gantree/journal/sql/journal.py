"""The journal in SQL: one implementation of the contract for all databases. Differences are in `Database`.

Every write begins by locking the one row of `leadership` (FOR KEY SHARE, where the database has row locks): a new
leader waits until the transaction is over, and a later write finds a newer epoch there and is refused.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Connection,
    Table,
    select,
)

from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.journal.contract import (
    LONGEST_LEASE_S,
    Compacted,
    InboxEntry,
    RecordedFact,
    SetAside,
    Snapshot,
)
from gantree.journal.encoding.codec import EVENT_CODEC, FACT_CODEC, ORDER_CODEC, Codec, Encoded
from gantree.journal.encoding.repeats import without_repeats
from gantree.journal.inbox_cache import InboxCache
from gantree.journal.sql import compaction, schema
from gantree.journal.sql.database import Database, KeyTaken
from gantree.journal.sql.history import SqlHistory, write_history
from gantree.journal.sql.history_tables import history_mark
from gantree.journal.sql.journal_statements import (
    ALL_SET_ASIDE,
    APPEND,
    BACKLOG,
    EVENT,
    EVENTS_AMONG,
    FENCE,
    FENCE_AND_TURN,
    INSERT,
    INSERT_TURN,
    LAST_EVENT,
    LAST_TURN,
    PAGES,
    PLACE,
    READ_INBOX,
    SEEN_AMONG,
)
from gantree.journal.sql.statements import Row, Statement
from gantree.journal.sql.tables import (
    compacted,
    epochs,
    facts,
    leadership,
    orders,
    set_aside,
    snapshots,
    turns,
)
from gantree.model.errors import BadInput, EventIdReused, JournalError, NotLeading
from gantree.model.events import Event
from gantree.model.facts import Fact
from gantree.model.orders import Order

TURNS_OF_A_PAGE = 10_000


class SqlJournal:
    """A journal in a database with tables of the newest version. The journal owns the database and closes it.

    One class, as `contract.Journal` is one interface: each method is a statement or a transaction of its own, and all
    writes share the check of the epoch.
    """

    def __init__(
        self, database: Database, check: Callable[[], None] = lambda: None, *, alone: bool = False
    ) -> None:
        """check is called before every write that names an epoch and before its commit; what it raises ends it.

        alone: nobody but this object appends, so an inbox that was read to its end needs no second look.
        """
        self.database = database
        self.history = SqlHistory(database)
        self._check = check
        self._unread = InboxCache()
        self._is_alone, self._all_read_at = alone, (-1, -1)

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def lead(self, holder: str, for_s: float) -> int | None:
        """Begin an epoch, if there is no leader or its lease has expired.

        One that runs for longer than any is taken for was taken before the database's clock was set back.
        """
        left_s = leadership.c.until - self.database.now
        runs = leadership.c.holder.is_not(None) & left_s.between(0.0, max(LONGEST_LEASE_S, for_s))
        look = select(leadership.c.epoch, runs.label("runs"))
        with self.database.reading() as connection:
            if not self.database.owned and connection.execute(look).one().runs:
                return None
            if self.database.clear is not None:
                connection.execute(self.database.clear)
        with self.database.writing() as connection:
            found = connection.execute(look.with_for_update()).one()
            schema.check_today(connection, self.database.name)
            if found.runs and not self.database.owned:
                return None
            epoch: int = found.epoch + 1
            until = self.database.now + for_s
            connection.execute(leadership.update().values(epoch=epoch, holder=holder, until=until))
            connection.execute(
                epochs.insert().values(epoch=epoch, holder=holder, began_at=self.database.now)
            )
        return epoch

    def renew(self, epoch: int, for_s: float) -> bool:
        """Let the lease run on. Where no lease is needed nothing is written."""
        if self.database.owned:
            newest, holder = self.leader()
            return newest == epoch and holder is not None
        until = self.database.now + for_s
        is_mine = (leadership.c.epoch == epoch) & leadership.c.holder.is_not(None)
        with self.database.reading() as connection:
            renewed = connection.execute(leadership.update().where(is_mine).values(until=until))
            return renewed.rowcount == 1

    def resign(self, epoch: int) -> None:
        """End the epoch, if it is the newest."""
        with self.database.writing() as connection:
            connection.execute(
                leadership.update().where(leadership.c.epoch == epoch).values(holder=None, until=0)
            )

    def leader(self) -> tuple[int, str | None]:
        """The newest epoch and its holder."""
        with self.database.reading() as connection:
            row = connection.execute(select(leadership.c.epoch, leadership.c.holder)).one()
            return row.epoch, row.holder

    def append_inbox(self, events: Sequence[Event], epoch: int) -> None:
        """Make events durable. Whether they repeat what is on record is looked at only where their ids are there."""
        try:
            self._append(events, epoch)
        except KeyTaken:
            fresh, reused = self._without_repeats(events)
            if reused:
                raise EventIdReused.of(reused) from None
            if len(fresh) == len(events):
                raise
            self._append(fresh, epoch)

    def append_emitted(self, events: Sequence[Event], epoch: int) -> None:
        """As above, for events that their source repeats after a crash."""
        with self.database.without_waiting():
            try:
                self.append_inbox(events, epoch)
            except EventIdReused:
                self.append_inbox(self._without_repeats(events)[0], epoch)
                raise

    def _append(self, events: Sequence[Event], epoch: int) -> None:
        """Raises KeyTaken where an id is on record, or comes twice; then none is taken."""
        codes = [EVENT_CODEC.encode(event) for event in events]
        rows = [event_row(event, code) for event, code in zip(events, codes, strict=True)]

        def append(connection: Connection, _: Row) -> None:
            if rows:
                APPEND.run(connection, rows)

        with self._unread.appending():
            self._write_leading(FENCE, epoch, append)
        for code, event in zip(codes, events, strict=True):
            self._unread.keep(code, event)

    def _without_repeats(
        self, events: Sequence[Event]
    ) -> tuple[list[Event], list[tuple[str, str]]]:
        rows = self._among(EVENTS_AMONG, [event.id for event in events])
        return without_repeats(events, {event_id: Encoded(*code) for event_id, *code in rows})

    def seen(self, event_ids: Collection[str]) -> frozenset[str]:
        """Which of these were ever appended."""
        asked = [event_id for event_id in event_ids if _is_writable(event_id)]
        return frozenset(found for (found,) in self._among(SEEN_AMONG, asked))

    def _among(self, statement: Statement, event_ids: Sequence[str]) -> list[Row]:
        """What a statement finds of these ids."""
        with self.database.reading() as connection:
            in_sqlite = connection.dialect.name == "sqlite"
            ids = json.dumps(event_ids) if in_sqlite else event_ids
            return statement.rows(connection, {"ids": ids})

    def event(self, event_id: str) -> Event | None:
        """The event of this id, if it still says anything."""
        if not _is_writable(event_id):
            return None
        with self.database.reading() as connection:
            found = EVENT.rows(connection, {"id": event_id})
        return EVENT_CODEC.decode(Encoded(*found[0])) if found and found[0][-1] else None

    def place_of(self, event_id: str) -> int | None:
        """Where the event of this id is in the inbox."""
        if not _is_writable(event_id):
            return None
        with self.database.reading() as connection:
            found = PLACE.rows(connection, {"id": event_id})
        return int(found[0][0]) if found else None

    def read_inbox(self, after_seq: int, limit: int) -> tuple[InboxEntry, ...]:
        """The next events that were not set aside."""
        moment = self._unread.moment(after_seq)
        if self._is_alone and moment == self._all_read_at:
            return ()
        with self.database.reading() as connection:
            rows = READ_INBOX.rows(connection, {"after": after_seq, "most": limit})
        if not rows and limit > 0:
            self._all_read_at = moment
        if rows and not rows[0][-1]:
            raise JournalError(
                f"journal {self.database.name}: event {rows[0][0]} was compacted, and can be read no more"
            )
        return tuple(InboxEntry(seq, self._unread.take(Encoded(*code))) for seq, *code in rows)

    def cursor(self) -> int:
        """Where the last turn stopped reading."""
        return int(self._last_turn()[1])

    def backlog(self) -> int:
        """How many events are after the cursor and were not set aside."""
        with self.database.reading() as connection:
            return int(connection.execute(BACKLOG, {"after": self.cursor()}).scalar_one())

    def check_place(self) -> None:
        """Whether the database is still the one that was opened."""
        self.database.check()

    def check_writable(self) -> None:
        """Write the end of the lease once more."""
        with self.database.writing() as connection:
            connection.execute(leadership.update().values(until=leadership.c.until))

    def turns(self) -> int:
        """How many turns have been committed."""
        return int(self._last_turn()[0])

    def last_epoch(self) -> int:
        """The epoch of the newest turn."""
        with self.database.reading() as connection:
            newest = select(turns.c.epoch).order_by(turns.c.turn.desc()).limit(1)
            return int(connection.execute(newest).scalar_one_or_none() or 0)

    def last_observed_at(self) -> float:
        """The largest observed_at. The inbox is monotone, so that is the last one's."""
        with self.database.reading() as connection:
            return float(connection.execute(LAST_EVENT).scalar_one_or_none() or 0.0)

    def commit_turn(
        self,
        cursor: int,
        facts: Sequence[Fact],
        orders: Sequence[Order],
        epoch: int,
        history: HistoryChange = NO_CHANGE,
    ) -> None:
        """Record one turn, and what it adds to the history, in one transaction."""
        fact_codes = [FACT_CODEC.encode(fact) for fact in facts]
        order_codes = [ORDER_CODEC.encode(order) for order in orders]

        def commit(connection: Connection, found: Row) -> None:
            turn, before, fact, order = (value or 0 for value in found)
            assert cursor >= before, f"the cursor would go back to {cursor}"
            values = {
                "turn": turn + 1,
                "epoch": epoch,
                "cursor": cursor,
                "last_fact": fact + len(facts),
                "last_order": order + len(orders),
            }
            INSERT_TURN.run(connection, [values])
            _insert(connection, "facts", turn + 1, fact, fact_codes)
            _insert(connection, "orders", turn + 1, order, order_codes)
            if history is not NO_CHANGE:
                write_history(connection, history, fact)

        self._write_leading(FENCE_AND_TURN, epoch, commit)

    def rebuild_history(self, change: HistoryChange, rebuild_after: int | None, epoch: int) -> None:
        """Add to the history apart from turns."""
        with self._leading(epoch) as connection:
            write_history(connection, change, after_fact=0)
            connection.execute(history_mark.update().values(rebuild_after=rebuild_after))

    def facts(self, after: int = 0) -> Iterator[RecordedFact]:
        """All facts after a seq. Raises JournalError where one is missing or damaged."""
        deleted = self.compacted_to()
        if after < deleted:
            raise JournalError(
                f"journal {self.database.name}: facts up to {deleted} were compacted into a snapshot"
            )
        for seq, fact in self._decoded(facts, after, FACT_CODEC):
            if seq != after + 1:
                raise JournalError(
                    f"journal {self.database.name} is damaged: fact {after + 1} is missing"
                )
            after = seq
            yield RecordedFact(seq, fact)

    def turn_ends(self, after: int = 0) -> Iterator[int]:
        """The seqs of the last facts of turns, those after a seq, oldest first."""
        page = select(turns.c.turn, turns.c.last_fact).order_by(turns.c.turn).limit(TURNS_OF_A_PAGE)
        found = [(0, 0)]
        while found:
            with self.database.reading() as connection:
                rows = connection.execute(page.where(turns.c.turn > found[-1][0]))
                found = [(int(turn), int(last_fact)) for turn, last_fact in rows]
            yield from (last_fact for _, last_fact in found if last_fact > after)

    def last_fact(self) -> int:
        """The seq of the newest fact."""
        return int(self._last_turn()[2])

    def facts_of(self, kind: type[Fact], after: int = 0) -> Iterator[RecordedFact]:
        """The facts of one kind after a seq that are there."""
        wanted = select(facts.c.seq, facts.c.kind, facts.c.version, facts.c.data)
        wanted = wanted.where(facts.c.seq > after, facts.c.kind == kind.__name__)
        wanted = wanted.order_by(facts.c.seq)
        with self.database.reading() as connection:
            found = connection.execute(wanted).all()
        for seq, *code in found:
            yield RecordedFact(seq, FACT_CODEC.decode(Encoded(*code)))

    def facts_about(self, job: str, after: int, to: int) -> Iterator[RecordedFact]:
        """The facts about one job, array or service after a seq, up to another, that are there."""
        wanted = select(facts.c.seq, facts.c.kind, facts.c.version, facts.c.data)
        wanted = wanted.where(facts.c.seq > after, facts.c.seq <= to).order_by(facts.c.seq)
        named = facts.c.data.contains(json.dumps(job), autoescape=True)
        with self.database.reading() as connection:
            found = connection.execute(wanted.where(named)).all()
        for seq, *code in found:  # some name it only beside another
            fact = FACT_CODEC.decode(Encoded(*code))
            about = (getattr(fact, kind, None) for kind in ("job", "array", "service"))
            if next(filter(None, about), None) == job:
                yield RecordedFact(seq, fact)

    def compacted_to(self) -> int:
        """The seq up to which facts were deleted."""
        with self.database.reading() as connection:
            return int(connection.execute(select(compacted.c.fact)).scalar_one())

    def facts_before(self, at: float) -> int:
        """The seq of the newest fact that follows from events before a moment; both grow with time."""
        with self.database.reading() as connection:
            return compaction.facts_before(connection, at)

    def orders(self, after: int = 0) -> Iterator[tuple[int, Order]]:
        """All orders after a seq."""
        return self._decoded(orders, after, ORDER_CODEC)

    def set_aside(self, seq: int, error: str, epoch: int) -> None:
        """Take one event out of the way for ever."""
        readable = error.encode(errors="replace").decode().replace("\0", "?")
        with self._leading(epoch) as connection:
            connection.execute(set_aside.insert().values(seq=seq, error=readable))

    def all_set_aside(self) -> tuple[SetAside, ...]:
        """Everything that was set aside."""
        with self.database.reading() as connection:
            rows = connection.execute(ALL_SET_ASIDE).all()
        return tuple(
            SetAside(seq, EVENT_CODEC.decode(Encoded(*code)), error) for seq, error, *code in rows
        )

    def save_snapshot(self, snapshot: Snapshot, epoch: int) -> None:
        """Keep a snapshot and the one before it."""
        with self._leading(epoch) as connection:
            compaction.save(connection, self.database.name, snapshot)

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot that is undamaged."""
        with self.database.reading() as connection:
            return compaction.latest(connection, self.database.name)

    def snapshot_seq(self) -> int:
        """The seq of the newest snapshot."""
        newest = select(snapshots.c.seq).order_by(snapshots.c.turn.desc()).limit(1)
        with self.database.reading() as connection:
            return int(connection.execute(newest).scalar_one_or_none() or 0)

    def compact(self, keep_after_seq: int, epoch: int) -> Compacted:
        """Delete what a readable snapshot covers."""
        with self._leading(epoch) as connection:
            return compaction.compact(connection, self.database.name, keep_after_seq)

    @contextmanager
    def _leading(self, epoch: int) -> Iterator[Connection]:
        """A transaction in which this epoch, and no other, is the newest."""
        self._check()
        with self.database.writing() as connection:
            self._check_newest(epoch, FENCE.rows(connection, {}))
            yield connection
            self._check()

    def _write_leading(
        self, look: Statement, epoch: int, write: Callable[[Connection, Row], None]
    ) -> None:
        """The same with what a look finds beside who leads; write runs nothing but `Statement`s."""

        def checked(connection: Connection, found: list[Row]) -> None:
            self._check_newest(epoch, found)
            write(connection, found[0][2:])
            self._check()

        self._check()
        self.database.write_after(look, checked)

    def _check_newest(self, epoch: int, found: Sequence[Row]) -> None:
        """Raises NotLeading for an epoch that is over; found is the row of the leadership."""
        newest, holder = found[0][:2]
        if newest != epoch:
            raise NotLeading(
                f"journal {self.database.name}: epoch {newest} has begun, {epoch} is over"
            )
        if holder is None:
            raise NotLeading(f"journal {self.database.name}: epoch {epoch} was resigned")

    def _last_turn(self) -> Row:
        with self.database.reading() as connection:
            return _last_turn(connection)

    def _decoded(self, table: Table, after: int, codec: Codec[Any]) -> Iterator[tuple[int, Any]]:
        """Rows in pages, each read whole, so that no connection is kept while the caller works."""
        while True:
            with self.database.reading() as connection:
                page = connection.execute(PAGES[table.name], {"after": after}).all()
            for seq, kind, version, data in page:
                yield seq, codec.decode(Encoded(kind, version, data))
            if not page:
                return
            after = page[-1].seq


def _last_turn(connection: Connection) -> Row:
    """Number, cursor, last fact and last order of the newest turn; zeros before the first."""
    found = LAST_TURN.rows(connection, {})
    return found[0] if found else (0, 0, 0, 0)


def event_row(event: Event, code: Encoded) -> dict[str, object]:
    if not _is_writable(event.id):
        raise BadInput(f"{code.kind} cannot be written down: its id holds a NUL: {event.id!r}")
    return {
        "id": event.id,
        "observed_at": event.observed_at,
        "kind": code.kind,
        "version": code.version,
        "data": code.data,
    }


def _is_writable(text: str) -> bool:
    """PostgreSQL's text has no NUL, and nobody's has a lone surrogate."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _insert(
    connection: Connection, table: str, turn: int, after: int, codes: Sequence[Encoded]
) -> None:
    if codes:
        rows = [
            {
                "seq": seq,
                "turn": turn,
                "kind": code.kind,
                "version": code.version,
                "data": code.data,
            }
            for seq, code in enumerate(codes, after + 1)
        ]
        INSERT[table].run(connection, rows)
