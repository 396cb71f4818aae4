"""A database of a journal: connections, transactions, and errors as JournalErrors.

Connections are in autocommit mode: a read is one statement on a connection of the pool, and `writing` begins and ends
its transaction itself, so that SQLite takes its write lock at the beginning. Any thread may read; writers of one
process come one after the other, on a connection that is kept for them and is nowhere else while one of them has it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, TextClause
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gantree.journal.sql.statements import Row, Statement, fetched
from gantree.model.errors import JournalError

Sync = Callable[[], None]


class KeyTaken(JournalError):
    """A row has the key of another one."""


def _nothing() -> None:
    """What is sent one by one is done by then."""


def one_by_one(driver: Any) -> AbstractContextManager[Sync]:
    """For a driver that waits for each statement."""
    return nullcontext(_nothing)


@dataclass(frozen=True, slots=True)
class Database:
    """An engine, how errors name it, and in what databases differ.

    now is the database's clock in seconds since 1970. owned says that whoever has it open is alone with it, so no
    lease is needed. clear ends the sessions of leaders that stopped in the middle of a write, where there can be any;
    it is run only when a lease has run out. is_ended tells of a connection of the driver that nobody uses whether the
    server has ended it. damage_hint follows the error where the data themselves are unreadable. loose is the statement
    after which a commit does not wait for the disk, strict the one after which it does again. together gives a block in
    which a connection of the driver sends statements without waiting for each, and what waits for all of them. check
    raises JournalError where the database is not what was opened; it is asked before a transaction and its commit.

    lock and kept belong together: a copy that has one of them and not the other would share a connection that it does
    not own, as one did once (docs/decisions/0022).
    """

    engine: Engine
    name: str
    begin: str
    now: ColumnElement[Any]
    owned: bool
    clear: TextClause | None = None
    is_ended: Callable[[Any], bool] = lambda connection: False
    secrets: tuple[str, ...] = ()
    damage_hint: str = ""
    loose: str = ""
    strict: str = ""
    together: Callable[[Any], AbstractContextManager[Sync]] = one_by_one
    check: Callable[[], None] = _nothing
    lock: threading.RLock = field(default_factory=threading.RLock)
    kept: list[Connection] = field(default_factory=list, repr=False)

    def apart(self) -> "Database":
        """The same database, with transactions that wait for none of these."""
        return replace(self, lock=threading.RLock(), kept=[])

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection on which each statement stands for itself."""
        with self.errors(), self.engine.connect() as connection:
            try:
                yield connection
            except self._failures as error:
                if not isinstance(
                    error, SQLAlchemyError
                ):  # it has not seen that; so not used again
                    connection.invalidate()
                self._give_up_idle()
                raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all of the block, or nothing."""
        with self.lock:
            self.check()
            connection = self._taken()
            try:
                driver = _driver(connection)
                driver.execute(self.begin)
                yield connection
                self.check()
                driver.execute("COMMIT")
            except BaseException as error:
                self._undo(connection, error)
                raise
            self.kept.append(connection)

    def write_after(self, look: Statement, write: Callable[[Connection, list[Row]], None]) -> None:
        """A transaction that begins with a look; write runs `Statement`s, by what it has found. All of it, or nothing.

        Where the database is another process it is waited for twice: BEGIN goes with the look, COMMIT with what is
        written. Between the two it knows that nothing is under way, and ends whoever stays away for too long. write is
        a function: generators in each other take a share of a small transaction that shows.
        """
        with self.lock:
            self.check()
            connection = self._taken()
            try:
                driver = _driver(connection)
                with self.together(driver) as sync:
                    driver.execute(self.begin)
                    looked = look.sent(connection, {})
                    sync()
                    write(connection, fetched(looked))
                    self.check()
                    driver.execute("COMMIT")
            except BaseException as error:
                self._undo(connection, error)
                raise
            self.kept.append(connection)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Transactions of this block are whole or nothing, but not waited for until they are on the disk: who loses
        power may lose the last of them. The next one that is waited for brings them there. Where nothing is gained by
        that, they are waited for.
        """
        with self.lock:
            self._say(self.loose)
            try:
                yield
            finally:
                self._say(self.strict)

    def _say(self, statement: str) -> None:
        """A statement on the connection of all transactions; where it fails, the next one has another connection."""
        if not statement:
            return
        with self.errors():
            connection = self._taken()
            try:
                _driver(connection).execute(statement)
            except BaseException:
                self._roll_back(connection)
                raise
            self.kept.append(connection)

    def _taken(self) -> Connection:
        """The connection of a transaction: the same for all of them until one fails on it.

        To take it from the pool and give it back costs more than a small transaction. While that lasts it is its alone,
        and not in `kept`.
        """
        if self.kept:
            connection = self.kept.pop()
            if not self.is_ended(_driver(connection)):
                return connection
            connection.invalidate()
            connection.close()
        with self.errors():
            return self.engine.connect()

    def _undo(self, connection: Connection, error: BaseException) -> None:
        """Leave nothing of a transaction. Raises JournalError for what the database said."""
        self._roll_back(connection)
        if isinstance(error, self._failures):
            told = self.error(error)
            if not isinstance(told, KeyTaken):
                self.engine.dispose()  # what has cut one line may have cut all that were idle
            raise told from None

    def _roll_back(self, connection: Connection) -> None:
        """Leave nothing of a transaction, nor its connection to the next one: whatever has happened on it."""
        if not connection.invalidated:
            with suppress(*self._failures):  # it may be rolled back already, or the line cut
                _driver(connection).execute("ROLLBACK")
        connection.invalidate()
        connection.close()

    def _give_up_idle(self) -> None:
        """After a failure elsewhere, which a kept connection may share; one that is at work finds out by itself."""
        if self.lock.acquire(blocking=False):
            try:
                self._give_up_kept()
            finally:
                self.lock.release()

    def _give_up_kept(self) -> None:
        for connection in self.kept:
            connection.invalidate()
            connection.close()
        self.kept.clear()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the database says becomes one line that names it and holds no secret."""
        try:
            yield
        except self._failures as error:
            raise self.error(error) from None

    @property
    def _failures(self) -> tuple[type[Exception], ...]:
        return SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error

    def error(self, error: Exception) -> JournalError:
        """One line that names the database and holds no secret."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        said = " ".join(str(cause).split())
        for secret in self.secrets:
            said = said.replace(secret, "***")
        if isinstance(cause, self.engine.dialect.loaded_dbapi.IntegrityError):
            return KeyTaken(f"journal {self.name}: {said}")
        damaged = type(cause).__module__ == "sqlite3" and type(cause).__name__ == "DatabaseError"
        return JournalError(f"journal {self.name}: {said}{self.damage_hint if damaged else ''}")

    def close(self) -> None:
        """Close every connection; what is asked afterwards opens others."""
        with self.lock, self.errors():
            self._give_up_kept()
            self.engine.dispose()


def _driver(connection: Connection) -> Any:
    """The driver's own connection."""
    return connection.connection.driver_connection
