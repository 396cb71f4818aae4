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

from sqlalchemy import ColumnElement, Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gantree.model.errors import JournalError


@dataclass(frozen=True, slots=True)
class Database:
    """An engine, how errors name it, and in what databases differ.

    now is the database's clock in seconds since 1970. owned says that whoever has it open is alone with it, so no
    lease is needed. damage_hint follows the error where the data themselves are unreadable.
    """

    engine: Engine
    name: str
    begin: str
    now: ColumnElement[Any]
    owned: bool
    secrets: tuple[str, ...] = ()
    damage_hint: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection on which each statement stands for itself."""
        with self.errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all of the block, or nothing."""
        with self.lock, self.errors(), self.engine.connect() as connection:
            connection.exec_driver_sql(self.begin)
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(SQLAlchemyError):  # it may be rolled back already, or the line cut
                    connection.exec_driver_sql("ROLLBACK")
                raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the database says becomes one line that names it and holds no secret."""
        try:
            yield
        except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error) as error:
            raise self.error(error) from None

    def error(self, error: Exception) -> JournalError:
        """One line that names the database and holds no secret."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        said = " ".join(str(cause).split())
        for secret in self.secrets:
            said = said.replace(secret, "***")
        damaged = type(cause).__module__ == "sqlite3" and type(cause).__name__ == "DatabaseError"
        return JournalError(f"journal {self.name}: {said}{self.damage_hint if damaged else ''}")

    def close(self) -> None:
        """Close every connection."""
        with self.errors():
            self.engine.dispose()
