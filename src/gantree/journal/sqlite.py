"""The default journal: one SQLite file in WAL mode with synchronous=FULL, one writer.

A state directory belongs to one process at a time: `journal.lock` beside the file is held with flock(2) as
long as the journal is open, and the kernel lets go of it however the process ends. The file's application_id
and user_version say what it is and by which version it was written; both are read through a read-only
connection before anything is changed, so a journal of a newer gantree, or a database of somebody else, stays
as it is. All rows are kept: the inbox is what a replay starts from.

One connection, used by one thread at a time (the control loop gives it a thread of its own).
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gantree.journal.codec import EVENT_CODEC, FACT_CODEC, ORDER_CODEC, Encoded
from gantree.journal.contract import InboxEntry, RecordedFact, SetAside
from gantree.model.errors import JournalError
from gantree.model.events import Event
from gantree.model.facts import Fact
from gantree.model.orders import Order

FILE = "journal.sqlite3"
LOCK = "journal.lock"
APPLICATION_ID = 0x67616E74
"""SQLite's application_id of our files: "gant" in ASCII."""
SCHEMA_VERSION = 1
"""SQLite's user_version of our files; grows with every change of the tables."""
PAGE_OF_FACTS = 1000

_SCHEMA = f"""
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY);
CREATE TABLE inbox (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, version INTEGER NOT NULL,
    observed_at REAL NOT NULL, data TEXT NOT NULL
);
CREATE TABLE turns (turn INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, cursor INTEGER NOT NULL);
CREATE TABLE facts (
    seq INTEGER PRIMARY KEY, turn INTEGER NOT NULL, kind TEXT NOT NULL, version INTEGER NOT NULL,
    data TEXT NOT NULL
);
CREATE TABLE orders (
    seq INTEGER PRIMARY KEY, turn INTEGER NOT NULL, kind TEXT NOT NULL, version INTEGER NOT NULL,
    data TEXT NOT NULL
);
CREATE TABLE set_aside (seq INTEGER PRIMARY KEY REFERENCES inbox (seq), error TEXT NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


@contextmanager
def _as_journal_error(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        damaged = (
            type(error) is sqlite3.DatabaseError
        )  # the others are locks, disks and our own mistakes
        way_out = "; restore it from a copy, or use another state directory" if damaged else ""
        raise JournalError(f"journal {path}: {error}{way_out}") from error


class SqliteJournal:
    """A journal in a state directory, which is created (mode 0700) where it is missing."""

    def __init__(self, state_dir: Path) -> None:
        """Raises JournalError if another process has it open, it is damaged or newer than this program, or
        nothing can be written there.
        """
        self.path = state_dir / FILE
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _take_lock(state_dir / LOCK)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise JournalError(f"{state_dir} cannot be a state directory: {reason}") from error
        try:
            with _as_journal_error(self.path):
                self._db = _open(self.path)
        except BaseException:
            os.close(self._lock)
            raise
        self._closed = False

    def close(self) -> None:
        """Close the file and let go of the lock."""
        if not self._closed:
            self._closed = True
            with _as_journal_error(self.path):
                self._db.close()
            os.close(self._lock)

    def next_epoch(self) -> int:
        """Begin a leadership."""
        with self._transaction():
            epoch = self._number("SELECT coalesce(max(epoch), 0) + 1 FROM epochs")
            self._db.execute("INSERT INTO epochs VALUES (?)", (epoch,))
        return epoch

    def append_inbox(self, events: Sequence[Event]) -> None:
        """Make events durable; ids that were ever appended are dropped."""
        rows = [
            (event.id, code.kind, code.version, event.observed_at, code.data)
            for event, code in ((event, EVENT_CODEC.encode(event)) for event in events)
        ]
        with self._transaction():
            self._db.executemany(
                "INSERT INTO inbox (id, kind, version, observed_at, data) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO NOTHING",
                rows,
            )

    def seen(self, event_id: str) -> bool:
        """Whether an event of this id was ever appended."""
        return bool(self._number("SELECT count(*) FROM inbox WHERE id = ?", event_id))

    def read_inbox(self, after_seq: int, limit: int) -> tuple[InboxEntry, ...]:
        """The next events that were not set aside."""
        rows = self._rows(
            "SELECT seq, kind, version, data FROM inbox"
            " WHERE seq > ? AND seq NOT IN (SELECT seq FROM set_aside) ORDER BY seq LIMIT ?",
            after_seq,
            limit,
        )
        return tuple(InboxEntry(seq, EVENT_CODEC.decode(Encoded(*code))) for seq, *code in rows)

    def cursor(self) -> int:
        """Where the last turn stopped reading."""
        return self._number(
            "SELECT coalesce((SELECT cursor FROM turns ORDER BY turn DESC LIMIT 1), 0)"
        )

    def last_observed_at(self) -> float:
        """The largest observed_at. The inbox is monotone, so that is the last one's."""
        rows = self._rows("SELECT observed_at FROM inbox ORDER BY seq DESC LIMIT 1")
        return float(rows[0][0]) if rows else 0.0

    def commit_turn(
        self, cursor: int, facts: Sequence[Fact], orders: Sequence[Order], epoch: int
    ) -> None:
        """Record one turn in one transaction."""
        fact_codes = [FACT_CODEC.encode(fact) for fact in facts]
        order_codes = [ORDER_CODEC.encode(order) for order in orders]
        with self._transaction():
            self._fence(epoch)
            turn = self._number("SELECT coalesce(max(turn), 0) + 1 FROM turns")
            assert cursor >= self.cursor(), f"the cursor would go back to {cursor}"
            self._db.execute("INSERT INTO turns VALUES (?, ?, ?)", (turn, epoch, cursor))
            self._insert("facts", turn, fact_codes)
            self._insert("orders", turn, order_codes)

    def turns(self) -> int:
        """How many turns have been committed."""
        return self._number("SELECT coalesce(max(turn), 0) FROM turns")

    def facts(self, after: int = 0) -> Iterator[RecordedFact]:
        """All facts after a seq. Raises JournalError where one is missing or damaged."""
        for seq, *code in self._pages("facts", after):
            if seq != after + 1:
                raise JournalError(f"journal {self.path} is damaged: fact {after + 1} is missing")
            after = seq
            yield RecordedFact(seq, FACT_CODEC.decode(Encoded(*code)))

    def orders(self, after: int = 0) -> Iterator[tuple[int, Order]]:
        """All orders after a seq."""
        for seq, *code in self._pages("orders", after):
            yield seq, ORDER_CODEC.decode(Encoded(*code))

    def set_aside(self, seq: int, error: str) -> None:
        """Take one event out of the way for ever."""
        with self._transaction():
            self._db.execute("INSERT INTO set_aside VALUES (?, ?)", (seq, error))

    def all_set_aside(self) -> tuple[SetAside, ...]:
        """Everything that was set aside."""
        rows = self._rows(
            "SELECT seq, error, kind, version, data FROM set_aside JOIN inbox USING (seq) ORDER BY seq"
        )
        return tuple(
            SetAside(seq, EVENT_CODEC.decode(Encoded(*code)), error) for seq, error, *code in rows
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _as_journal_error(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite has rolled back already after some errors
                    self._db.execute("ROLLBACK")
                raise

    def _fence(self, epoch: int) -> None:
        newest = self._number("SELECT coalesce(max(epoch), 0) FROM epochs")
        if newest != epoch:
            raise JournalError(f"journal {self.path}: epoch {newest} has begun, {epoch} is over")

    def _insert(self, table: str, turn: int, codes: Iterable[Encoded]) -> None:
        assert table in ("facts", "orders")
        self._db.executemany(
            f"INSERT INTO {table} (turn, kind, version, data) VALUES (?, ?, ?, ?)",  # noqa: S608 - asserted above
            [(turn, code.kind, code.version, code.data) for code in codes],
        )

    def _pages(self, table: str, after: int) -> Iterator[tuple[Any, ...]]:
        """Rows in pages, each read whole, so that no cursor stays open while the caller works."""
        assert table in ("facts", "orders")
        query = f"SELECT seq, kind, version, data FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608 - asserted above
        while page := self._rows(query, after, PAGE_OF_FACTS):
            yield from page
            after = page[-1][0]

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with _as_journal_error(self.path):
            return self._db.execute(query, values).fetchall()

    def _number(self, query: str, *values: object) -> int:
        return int(self._rows(query, *values)[0][0])


def _take_lock(path: Path) -> int:
    """Hold the lock file for this process. The number in it is for the other's error message only."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise JournalError(
            f"{path.parent} is in use by another daemon (process {holder}); stop it first, or use another directory"
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _open(path: Path) -> sqlite3.Connection:
    fresh = not path.exists() or path.stat().st_size == 0
    if fresh:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    else:
        _refuse_foreign(path)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if db.execute("PRAGMA user_version").fetchone()[0] == 0:
        db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
        _sync_directory(path.parent)
    return db


def _refuse_foreign(path: Path) -> None:
    """Raise JournalError unless the file is a journal that this version understands; changes nothing."""
    probe = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        application = probe.execute("PRAGMA application_id").fetchone()[0]
        version = probe.execute("PRAGMA user_version").fetchone()[0]
        tables = probe.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        probe.close()
    if application != APPLICATION_ID and tables:
        raise JournalError(f"{path} is a database, but no journal of gantree; it is left as it is")
    if version > SCHEMA_VERSION:
        raise JournalError(
            f"{path} was written by a newer gantree (schema {version}, not {SCHEMA_VERSION}); it is left as it is"
        )


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
