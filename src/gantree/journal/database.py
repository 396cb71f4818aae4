"""A database as a journal uses it: connections, transactions, and errors that are JournalErrors.

Connections are in autocommit mode: a read is one statement on a connection of the pool, and `writing` begins and ends
its transaction itself, so that SQLite takes its write lock at the beginning. Any thread may read; writers of one
process come one after the other.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, TextClause
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gantree.model.errors import JournalError


@dataclass(frozen=True, slots=True)
class Database:
    """An engine, how errors name it, and in what databases differ.

    now is the database's clock in seconds since 1970. owned says that whoever has it open is alone with it, so no
    lease is needed. clear ends the sessions of leaders that stopped in the middle of a write, where there can be any;
    it is run only when a lease has run out. damage_hint follows the error where the data themselves are unreadable.
    loose is the statement after which a commit does not wait for the disk, strict the one after which it does again.
    """

    engine: Engine
    name: str
    begin: str
    now: ColumnElement[Any]
    owned: bool
    clear: TextClause | None = None
    secrets: tuple[str, ...] = ()
    damage_hint: str = ""
    loose: str = ""
    strict: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    kept: list[Connection] = field(default_factory=list, repr=False)

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
                raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all of the block, or nothing."""
        with self.lock, self._writer() as connection:
            try:
                driver: Any = connection.connection.driver_connection
                driver.execute(self.begin)
                yield connection
                driver.execute("COMMIT")
            except BaseException as error:
                self._roll_back(connection)
                if isinstance(error, self._failures):
                    self.engine.dispose()  # what has cut one line may have cut all that were idle
                    raise self.error(error) from None
                raise

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
        with self.errors(), self._writer() as connection:
            driver: Any = connection.connection.driver_connection
            try:
                driver.execute(statement)
            except BaseException:
                self._roll_back(connection)
                raise

    @contextmanager
    def _writer(self) -> Iterator[Connection]:
        """The connection of a transaction: one of the pool.

        A database that is ours alone has one for all of them, until one fails on it: to take it from the pool and give
        it back costs more there than a small transaction.
        """
        with self.errors():
            connection = self.kept.pop() if self.kept else self.engine.connect()
        yield connection
        if not self.owned:
            connection.close()
        elif not connection.closed:
            self.kept.append(connection)

    def _roll_back(self, connection: Connection) -> None:
        """Leave nothing of a transaction, nor its connection to the next one: whatever has happened on it."""
        if not connection.invalidated:
            driver: Any = connection.connection.driver_connection
            with suppress(*self._failures):  # it may be rolled back already, or the line cut
                driver.execute("ROLLBACK")
        connection.invalidate()
        connection.close()

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
        damaged = type(cause).__module__ == "sqlite3" and type(cause).__name__ == "DatabaseError"
        return JournalError(f"journal {self.name}: {said}{self.damage_hint if damaged else ''}")

    def close(self) -> None:
        """Close every connection; what is asked afterwards opens others."""
        with self.lock, self.errors():
            self._give_up_kept()
            self.engine.dispose()
