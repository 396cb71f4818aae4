"""Verifies a whole journal and reports what is wrong in it. It changes and decides nothing.

Every row is decoded and every number compared with those it must agree with, so what passes can be folded and went
through no other hands. Rows are read in pages by their keys; a daemon may write meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, Table, select

from gantree.journal.encoding.codec import EVENT_CODEC, FACT_CODEC, ORDER_CODEC, Codec, Encoded
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.sql.compaction import snapshot_of
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.journal_statements import PAGE
from gantree.journal.sql.tables import (
    compacted,
    epochs,
    facts,
    inbox,
    leadership,
    orders,
    set_aside,
    snapshots,
    turns,
)
from gantree.model.errors import JournalError

CODECS: dict[str, Codec[Any]] = {"inbox": EVENT_CODEC, "facts": FACT_CODEC, "orders": ORDER_CODEC}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong. row is the key of the row of that table; None where it is the table, or the whole."""

    table: str
    row: int | None
    what: str

    def __str__(self) -> str:
        where = self.table if self.row is None else f"{self.table} row {self.row}"
        return f"{where}: {self.what}"


@dataclass(slots=True)
class Report:
    """What was read: rows by table, and what is wrong."""

    rows: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def verify(journal: SqlJournal) -> Report:
    """Read everything. Raises JournalError only if the database cannot be read at all."""
    return _Verification(journal).run()


def rows_of(
    journal: SqlJournal, table: Table, last: int | None = None
) -> Iterator[Row[*tuple[Any, ...]]]:
    """All rows of a table by their key, in pages, up to and with the row of that key."""
    key = next(iter(table.primary_key))
    after = -1
    while True:
        page = select(table).where(key > after).order_by(key).limit(PAGE)
        if last is not None:
            page = page.where(key <= last)
        with journal.database.reading() as connection:
            rows = connection.execute(page).all()
        yield from rows
        if not rows:
            return
        after = int(getattr(rows[-1], key.name))


class _Verification:
    """One reading. The last turn is read first: what comes later was written meanwhile, and is not looked at."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal = journal
        self._report = Report()
        with journal.database.reading() as connection:
            self._gone = connection.execute(select(compacted)).one()
            newest = select(turns).order_by(turns.c.turn.desc()).limit(1)
            self._end = connection.execute(newest).one_or_none()
            last_event = select(inbox.c.seq).order_by(inbox.c.seq.desc()).limit(1)
            self._last_event = connection.execute(last_event).scalar_one_or_none() or 0

    def run(self) -> Report:
        """Every table."""
        self._check_file()
        self._check_inbox()
        self._check_turns()
        self._check_counted(facts, self._gone.fact, self._end.last_fact if self._end else 0)
        self._check_counted(orders, self._gone.order, self._end.last_order if self._end else 0)
        self._check_set_aside()
        self._check_leadership()
        self._check_snapshots()
        return self._report

    def _fault(self, table: Table, row: int | None, what: str) -> None:
        self._report.faults.append(Fault(table.name, row, what))

    def _read(self, table: Table, last: int | None = None) -> Iterator[Row[*tuple[Any, ...]]]:
        self._report.rows[table.name] = 0
        for row in rows_of(self._journal, table, last):
            self._report.rows[table.name] += 1
            yield row

    def _check_file(self) -> None:
        with self._journal.database.reading() as connection:
            if connection.dialect.name == "sqlite":
                said = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
                faults = [Fault("file", None, each) for each in said if each != "ok"]
                self._report.faults += faults

    def _decodes(self, table: Table, row: Row[*tuple[Any, ...]]) -> Any:
        """The value, None if it cannot be read; that is then said."""
        try:
            return CODECS[table.name].decode(Encoded(row.kind, row.version, row.data))
        except JournalError as error:
            self._fault(table, row.seq, str(error))
            return None

    def _check_inbox(self) -> None:
        aside = {row.seq for row in rows_of(self._journal, set_aside)}
        seq, at = 0, 0.0
        for row in self._read(inbox, self._last_event):
            if row.seq != seq + 1:
                self._fault(
                    inbox, row.seq, f"the row before it is {seq}; what was between is missing"
                )
            if row.observed_at < at:
                self._fault(inbox, row.seq, f"time goes back from {at} to {row.observed_at}")
            seq, at = row.seq, max(at, row.observed_at)
            if row.data or row.seq > self._gone.event or row.seq in aside:
                event = self._decodes(inbox, row)
                said = None if event is None else (event.id, event.observed_at)
                if said not in (None, (row.id, row.observed_at)):
                    self._fault(inbox, row.seq, "its id or time is not what its data say")

    def _check_turns(self) -> None:
        before: Row[*tuple[Any, ...]] | None = None
        for row in self._read(turns, self._end.turn if self._end else 0):
            if before is None:
                if row.turn != max(1, self._gone.turn):
                    self._fault(turns, row.turn, "the turns before it are missing")
            elif row.turn != before.turn + 1:
                self._fault(turns, row.turn, f"the row before it is {before.turn}")
            elif any(new < old for new, old in zip(row[1:], before[1:], strict=True)):
                self._fault(turns, row.turn, "epoch, cursor or counts go back")
            before = row
        if before is not None and before.cursor > self._last_event:
            self._fault(
                turns, before.turn, f"the cursor is beyond the last event, {self._last_event}"
            )

    def _check_counted(self, table: Table, gone: int, last: int) -> None:
        """Facts or orders: none is missing, each can be read, none is of a turn that there is not."""
        seq, turn = gone, 0
        for row in self._read(table, last):
            if row.seq <= gone:
                self._fault(
                    table, row.seq, f"rows up to {gone} were compacted, and it is still there"
                )
                continue
            if row.seq != seq + 1:
                self._fault(
                    table, row.seq, f"the row before it is {seq}; what was between is missing"
                )
            if row.turn < turn or (self._end is not None and row.turn > self._end.turn):
                self._fault(table, row.seq, f"it is of turn {row.turn}, which is not its place")
            seq, turn = row.seq, max(turn, row.turn)
            self._decodes(table, row)
        if seq != last:
            self._fault(table, None, f"it ends with row {seq}, and turns say {last}")

    def _check_set_aside(self) -> None:
        for row in self._read(set_aside):
            if row.seq > self._last_event:
                self._fault(set_aside, row.seq, "there is no such event")

    def _check_leadership(self) -> None:
        newest = max((row.epoch for row in self._read(epochs)), default=0)
        with self._journal.database.reading() as connection:
            said = connection.execute(select(leadership.c.epoch)).scalar_one()
        if said < newest or (self._end is not None and self._end.epoch > said):
            self._fault(leadership, 1, f"it says epoch {said}, and {newest} has begun")

    def _check_snapshots(self) -> None:
        for row in self._read(snapshots):
            snapshot = snapshot_of(row)
            if snapshot is None:
                self._fault(snapshots, row.turn, "its text is damaged")
                continue
            try:
                SnapshotCodec().decode(snapshot.text)
            except JournalError as error:
                self._fault(snapshots, row.turn, str(error))
        if self._gone.fact:
            try:
                self._journal.latest_snapshot()
            except JournalError as error:
                self._fault(snapshots, None, str(error))
