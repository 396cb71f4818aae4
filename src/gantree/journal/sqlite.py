"""The default journal: one SQLite file in WAL mode with synchronous=FULL, one process that writes.

What the cluster tells again after a crash is appended with synchronous=NORMAL: the commit of the turn that decides
about it, a moment later, brings both to the disk.

A state directory belongs to one process at a time, as long as the journal is open (`state_directory`): that is the
lease. Before each transaction and its commit it is checked to be there still. The file's application_id and
user_version say what it is and by which version it was written; both are read through a read-only connection before
anything is changed, so a journal of a newer gantree, or a database of somebody else, stays as it is.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Double, Engine, create_engine, literal_column
from sqlalchemy.pool import QueuePool

from gantree.journal.sql import schema
from gantree.journal.sql.database import Database
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.tables import VERSION
from gantree.journal.state_directory import StateDirectory
from gantree.model.errors import JournalError

FILE = "journal.sqlite3"
APPLICATION_ID = 0x67616E74
"""SQLite's application_id of our files: "gant" in ASCII."""
NOW = literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double)
STRICT = "PRAGMA synchronous = FULL"
DAMAGE_HINT = "; restore it from a copy, or use another state directory"


class SqliteJournal(SqlJournal):
    """A journal in a state directory, which is created (mode 0700) where it is missing."""

    def __init__(
        self, state_dir: Path, kind: type[sqlite3.Connection] = sqlite3.Connection
    ) -> None:
        """kind is the class of the connections that write.

        Raises JournalError if another process has it open, it is damaged or newer than this program, or nothing can
        be written there.
        """
        self.path = state_dir / FILE
        self._directory: StateDirectory | None = StateDirectory(state_dir)
        check = self._directory.check
        super().__init__(
            database_at(self.path, lambda: connect(self.path, kind), check), alone=True
        )
        try:
            with self.database.errors():
                self._prepare()
            self._directory.keep(self.path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file and let go of the lock."""
        directory, self._directory = self._directory, None
        if directory is not None:
            super().close()
            directory.close()

    def check_writable(self) -> None:
        """Also whether there is room: what is written here may fit where an earlier turn was.

        Raises JournalError.
        """
        super().check_writable()
        assert self._directory is not None, "a journal that was closed"
        try:
            self._directory.check_room()
        except OSError as error:
            raise JournalError(
                f"the disk of journal {self.path} has no room (bytes or inodes): {error.strerror}"
            ) from error

    def _prepare(self) -> None:
        """Make the file, or bring an older one up to date."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            version = 0
        else:
            version = _version_of(self.path)
        if version != VERSION:
            with self.database.writing() as connection:
                if version == 0:
                    schema.create(connection)
                else:
                    schema.migrate(connection, version)
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
            _sync_directory(self.path.parent)


class SqliteReader(SqlJournal):
    """The journal of a state directory for reading only, while a daemon has it open or not."""

    def __init__(self, state_dir: Path, file: str = FILE) -> None:
        """file is the name of the journal, or of a copy of one, in the directory.

        Raises JournalError if there is none, or it is not of this program's version.
        """
        self.path = state_dir / file
        if not self.path.exists():
            raise JournalError(f"{state_dir} has no journal ({file})")
        super().__init__(database_at(self.path, lambda: _connect_read_only(self.path)))
        with self.database.errors():
            version = _version_of(self.path)
        if version != VERSION:
            raise JournalError(
                f"{self.path} was written by an older gantree (schema {version}, not {VERSION});"
                " the next `gantree up` brings it up to date"
            )


def quick_check(state_dir: Path, within_s: float) -> list[str] | None:
    """What SQLite's quick_check says against the journal of a state directory; None if it takes longer.

    A daemon may have it open. Raises JournalError if it cannot be read at all.
    """
    deadline_s = time.monotonic() + within_s
    try:
        connection = _connect_read_only(state_dir / FILE)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > deadline_s, 100_000)
            said = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname == "SQLITE_INTERRUPT":
            return None
        raise JournalError(f"journal {state_dir / FILE}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise JournalError(f"journal {state_dir / FILE} is damaged: {error}") from error
    return [text for text in said if text != "ok"]


def back_up(state_dir: Path, target: Path) -> None:
    """Copy the journal of a state directory to a file that is not there yet, while a daemon may go on writing.

    What comes is one moment of it, of whatever version. Raises JournalError; then no file is left.
    """
    source = state_dir / FILE
    if not source.exists():
        raise JournalError(f"{state_dir} has no journal ({FILE})")
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise JournalError(f"{target} cannot be written: {reason}") from error
    try:
        _version_of(source)
        _copy(source, target)
    except BaseException as error:
        target.unlink()
        if isinstance(error, sqlite3.Error | OSError):
            raise JournalError(f"journal {source} was not copied to {target}: {error}") from error
        raise


def vacuum(journal: SqliteJournal) -> None:
    """Give the room of deleted rows back to the disk."""
    with journal.database.reading() as connection:
        connection.exec_driver_sql("VACUUM")


def _copy(source: Path, target: Path) -> None:
    """All pages in one step, so that a daemon that writes meanwhile does not make the copy begin anew."""
    reading, writing = _connect_read_only(source), sqlite3.connect(target)
    try:
        reading.backup(writing)
    finally:
        writing.close()
        reading.close()
    copied = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(copied)
    finally:
        os.close(copied)
    _sync_directory(target.absolute().parent)


def _nothing() -> None:
    """A reader promises nothing."""


def database_at(
    path: Path,
    connect: Callable[[], sqlite3.Connection],
    check: Callable[[], None] = _nothing,
) -> Database:
    """The database of a journal in a file. Whoever opens it is taken to be alone with it."""
    engine: Engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_use_lifo=True,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
    )
    return Database(
        engine,
        str(path),
        "BEGIN IMMEDIATE",
        NOW,
        owned=True,
        damage_hint=DAMAGE_HINT,
        loose="PRAGMA synchronous = NORMAL",
        strict=STRICT,
        check=check,
    )


def connect(path: Path, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """A connection that writes: its transactions are on the disk when they are over."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=kind)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(STRICT)
    return connection


def _connect_read_only(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _version_of(path: Path) -> int:
    """The version of the tables; 0 where there are none. Changes nothing.

    Raises JournalError unless the file is a journal that this program understands.
    """
    probe = _connect_read_only(path)
    try:
        application = probe.execute("PRAGMA application_id").fetchone()[0]
        version = int(probe.execute("PRAGMA user_version").fetchone()[0])
        tables = probe.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        probe.close()
    if application != APPLICATION_ID and tables:
        raise JournalError(f"{path} is a database, but no journal of gantree; it is left as it is")
    if version > VERSION:
        raise schema.newer(str(path), version)
    return version


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
