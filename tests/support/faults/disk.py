"""The disk below a SQLite journal: what of it is synced, and the faults of its transactions.

The journal's files are real files, in memory where the machine has such a place, and SQLite writes them itself. Each
statement that writes is a point (`points`) at which the process may die. A process that is killed leaves the files as
they are. A power cut leaves the database, its log up to the last transaction whose commit waited for the disk, and of
what came after that a seeded piece (`write_ahead_log`). SQLite syncs its log at every commit with synchronous=FULL, and
before and after each checkpoint; which of the two settings a commit had is taken from what the journal told SQLite.

A full disk is SQLite's own: the database may not grow (PRAGMA max_page_count).
"""

import shutil
import sqlite3
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from gantree.journal.sqlite import FILE
from support.faults import write_ahead_log as log
from support.faults.points import Died, Points
from support.faults.tally import Tally

LOG = f"{FILE}-wal"
UNLIMITED_PAGES = 1_073_741_823
READS = ("SELECT", "PRAGMA")


class Disk:
    """One disk over a life. `place` is the directory that a process opens; it changes when a process dies."""

    def __init__(self, base: Path, tally: Tally, lots: Random) -> None:
        self._base, self._tally, self._lots = base, tally, lots
        self._numbers = count(1)
        self.place = self._next_place()
        self.checkpoint_pages = lots.choice([1000, 1000, 60])
        self._synced = log.NOTHING
        self.is_full = False
        self.failing: str | None = None
        """"statement": the next one that writes fails; "answer": the next commit succeeds and says that it failed."""

    def _next_place(self) -> Path:
        place = self._base / f"disk{next(self._numbers)}"
        place.mkdir()
        return place

    def attached(self, points: Points) -> type[sqlite3.Connection]:
        """The class of connections of one process, whose points these are."""
        return type("Attached", (FaultyConnection,), {"process": Attachment(self, points)})

    def note_synced(self) -> None:
        """All that is in the log by now is on the disk."""
        self._synced = log.end_of(self.place / LOG, self._synced)

    def after_kill(self) -> None:
        """The process is gone, all that it wrote is there: the next one finds it in another directory."""
        self._copy(cut=False)

    def after_power_cut(self) -> None:
        """The machine is gone too."""
        self._copy(cut=True)

    def _copy(self, *, cut: bool) -> None:
        before, self.place = self.place, self._next_place()
        if (before / FILE).exists():
            shutil.copyfile(before / FILE, self.place / FILE)
        if (before / LOG).exists():
            written = (before / LOG).read_bytes()
            is_torn = False
            if cut:
                written, is_torn = log.after_power_cut(written, self._synced, self._lots)
            (self.place / LOG).write_bytes(written)
            if is_torn:
                self._tally.came("torn tail")
        self._synced = log.end_of(self.place / LOG, log.NOTHING)

    def take_failure(self, kind: str) -> bool:
        """Whether this kind of failure is due; it comes once."""
        if self.failing != kind:
            return False
        self.failing = None
        self._tally.came("write error" if kind == "statement" else "lost answer")
        return True

    def came_full(self) -> None:
        """A transaction found no room."""
        self._tally.came("disk full")


class Attachment:
    """What the connections of one process share: the disk, its points, and whether it has died."""

    def __init__(self, disk: Disk, points: Points) -> None:
        self.disk, self.points = disk, points
        self.is_dead = False
        self.in_transaction = False


class FaultyConnection(sqlite3.Connection):
    """A connection to a journal on a `Disk`."""

    process: ClassVar[Attachment]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.waits_for_disk = True
        self._is_limited = False
        pages = self.process.disk.checkpoint_pages
        sqlite3.Connection.execute(self, f"PRAGMA wal_autocheckpoint = {pages}")

    def cursor(self, factory: Any = None) -> Any:
        """A cursor whose statements meet the faults."""
        return super().cursor(factory or FaultyCursor)

    def execute(self, sql: str, *given: Any) -> Any:
        """As the cursor does."""
        return self.cursor().execute(sql, *given)

    def limit(self) -> None:
        """Let the database grow, or not, as the disk has room."""
        is_full = self.process.disk.is_full
        if is_full == self._is_limited:
            return
        self._is_limited = is_full
        pages = UNLIMITED_PAGES
        if is_full:
            (pages,) = sqlite3.Connection.execute(self, "PRAGMA page_count").fetchone()
        sqlite3.Connection.execute(self, f"PRAGMA max_page_count = {pages}").fetchone()


class FaultyCursor(sqlite3.Cursor):
    """Each statement that writes is a point, and may fail."""

    def execute(self, sql: str, *given: Any) -> Any:
        """Run one statement."""
        self._before(sql)
        try:
            found = super().execute(sql, *given)
        except sqlite3.OperationalError as error:
            self._failed(error)
            raise
        self._after(sql)
        return found

    def executemany(self, sql: str, many: Any) -> Any:
        """Run one statement with many values."""
        self._before(sql)
        rows: Sequence[Any] = list(many)
        try:
            found = super().executemany(sql, rows)
        except sqlite3.OperationalError as error:
            self._failed(error)
            raise
        self._after(sql)
        return found

    @property
    def _line(self) -> FaultyConnection:
        line = self.connection
        assert isinstance(line, FaultyConnection)
        return line

    def _before(self, sql: str) -> None:
        process = self._line.process
        if sql.lstrip().startswith(READS):
            if process.is_dead:
                raise Died
            return
        if sql == "ROLLBACK":
            process.in_transaction = False
            return
        if process.is_dead:
            raise Died
        if sql.startswith("BEGIN"):
            self._line.limit()
        process.points.passing(sql[:40])
        if not sql.startswith(("BEGIN", "COMMIT")) and process.disk.take_failure("statement"):
            raise sqlite3.OperationalError("disk I/O error")

    def _after(self, sql: str) -> None:
        line, process = self._line, self._line.process
        if sql.startswith("PRAGMA synchronous"):
            line.waits_for_disk = sql.rpartition(" ")[2] in ("FULL", "EXTRA")
        elif sql.startswith("BEGIN"):
            process.in_transaction = True
        elif sql == "COMMIT":
            process.in_transaction = False
            if line.waits_for_disk:
                process.disk.note_synced()
            if process.disk.take_failure("answer"):
                raise sqlite3.OperationalError("disk I/O error")
            process.points.passing("after COMMIT")

    def _failed(self, error: sqlite3.OperationalError) -> None:
        if "full" in str(error):
            self._line.process.disk.came_full()
