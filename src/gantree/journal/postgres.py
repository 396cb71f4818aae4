"""The journal in a PostgreSQL database, which several daemons may share: one leads, the others read.

The URL is `postgresql://USER@HOST:PORT/DATABASE`; parameters of libpq may follow (`?sslmode=verify-full`). The tables
stand in the first schema of the search path, which holds nothing else. A password is best kept in ~/.pgpass or
PGPASSWORD; one in the URL is never repeated in errors and logs.

A leader that is paused in the middle of a transaction holds the row of leadership. The server ends such a session
after two thirds of the lease, and whoever would lead once the lease has run out ends it too, so that nobody has to wait
for it. One that died while the server did something for it holds the row until the server notices, within a second.

A server that restarts, or is told to, ends connections that nobody uses just then. Those are found before they are used
again: a daemon that stood by for a week would otherwise fail at its first word as the leader, and an audit row be lost.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from select import POLLIN, poll
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Double,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DisconnectionError

from gantree.journal.contract import LONGEST_LEASE_S
from gantree.journal.sql import schema
from gantree.journal.sql.database import Database, Sync
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.tables import VERSION, VERSION_TABLE
from gantree.model.errors import BadInput, JournalError, Unsupported

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class Limits:
    """What libpq is told where the URL does not say otherwise, and settings of a session on the server."""

    parameters: Mapping[str, object]
    settings: str


_PROBES = {"keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3}


def patient(lease_s: float) -> Limits:
    """For what may take its time: seconds a connection may take, milliseconds that the network may owe an
    acknowledgement, and seconds until a server is asked whether it is there while its answer is waited for.

    Who stops in the middle of a transaction loses it before its lease can have run out: after two thirds of it.
    """
    idle = f"-c idle_in_transaction_session_timeout={int(lease_s * 2000 / 3)}"
    return Limits({"connect_timeout": 5, "tcp_user_timeout": 5000, **_PROBES}, idle)


def quick(lease_s: float) -> Limits:
    """For the election and the lease: two thirds of it for a connection, one third for the network and for a lock."""
    third_ms = int(lease_s * 1000 / 3)
    own = {"connect_timeout": max(2, int(lease_s * 2 / 3)), "tcp_user_timeout": third_ms}
    return Limits({**_PROBES, **own}, f"{patient(lease_s).settings} -c lock_timeout={third_ms}")


LED_SINCE = 2
"""The first version of the tables that say who leads."""
MIGRATING = 0x67616E74
"""The advisory lock under which one daemon at a time makes or changes the tables."""
CLEAR = text(
    """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)
    WHERE relation = 'leadership'::regclass AND granted AND pg_locks.database = datid
    AND datname = current_database() AND usename = current_user
    AND wait_event = 'ClientRead' AND xact_start < clock_timestamp() - interval '1 second'
    """
)
"""Ends sessions that hold the row of leadership and wait for their client. The server's own time limit was seen
to spare one for minutes: perhaps one that had sent a part of a pipeline before it stopped."""
LOOKS_FOR_CLIENTS = 140_000
"""The first version of PostgreSQL that ends a session whose client is gone before it has to be answered. Without it the
session of a leader that died while it waited for a lock keeps the row of leadership until it has got that."""
LOOK_FOR_CLIENT_MS = 500
NOW = func.extract("epoch", func.clock_timestamp()).cast(Double)


class PostgresJournal(SqlJournal):
    """A journal in a database. Any thread may use it; connections are opened as they are needed, and kept."""

    def __init__(
        self, url: str, check: Callable[[], None] = lambda: None, lease_s: float = LONGEST_LEASE_S
    ) -> None:
        """Makes the tables in an empty database, and brings older ones up to date. check as in `SqlJournal`.

        Raises BadInput for what is no such URL, JournalError if the database cannot be reached, is of somebody else or
        newer than this program; it is left as it is then.
        """
        super().__init__(_database(_checked(url), patient(lease_s)), check)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        with self.database.reading() as connection:
            if _version_of(connection, self.database.name) == VERSION:
                return
        with self.database.writing() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(MIGRATING)))
            version = _version_of(connection, self.database.name)
            if version == 0:
                schema.create(connection)
            elif version != VERSION:
                if version >= LED_SINCE:
                    schema.depose(connection, self.database.now)
                schema.migrate(connection, version)


class PostgresReader(SqlJournal):
    """The journal of a database, whose tables are left as they are."""

    def __init__(self, url: str) -> None:
        """Raises BadInput, and JournalError as `PostgresJournal` does, or if there is no journal of today's version."""
        super().__init__(_database(_checked(url), patient(LONGEST_LEASE_S)))
        try:
            with self.database.reading() as connection:
                version = _version_of(connection, self.database.name)
            if version != VERSION:
                raise JournalError(_not_today(self.database.name, version))
        except BaseException:
            self.close()
            raise


class PostgresElection(SqlJournal):
    """Connections for the election and the lease alone: what takes longer than a lease allows is given up.

    The tables must be there, and are left as they are.
    """

    def __init__(self, url: str, lease_s: float) -> None:
        """Raises BadInput for what is no such URL. Nothing is asked yet."""
        super().__init__(_database(_checked(url), quick(lease_s)))


def _not_today(name: str, version: int) -> str:
    if version == 0:
        return f"{name} holds no journal"
    return (
        f"{name} was written by an older gantree (schema {version}, not {VERSION});"
        " the next `gantree up` brings it up to date"
    )


def _version_of(connection: Connection, name: str) -> int:
    """The version of the tables; 0 where there are none. Changes nothing.

    Raises JournalError unless the database is empty or a journal that this program understands.
    """
    tables = inspect(connection).get_table_names()
    if not tables:
        return 0
    if VERSION_TABLE not in tables:
        raise JournalError(
            f"{name} has tables, but is no journal of gantree; it is left as it is."
            " A journal needs a database, or a schema, of its own"
        )
    version = schema.version_in(connection)
    if version > VERSION:
        raise schema.newer(name, version)
    return version


def _checked(url: str) -> URL:
    """The URL as SQLAlchemy has it. The text is not repeated in errors: there may be a password in it."""
    allowed = "allowed: postgresql://USER@HOST:PORT/DATABASE"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise BadInput(f"the database's address is no URL; {allowed}") from None
    if parsed.drivername not in SCHEMES:
        raise BadInput(f"the database's address begins with {parsed.drivername}://; {allowed}")
    if parsed.database is None:
        raise BadInput(f"the database's address names no database; {allowed}")
    if find_spec("psycopg") is None:
        raise Unsupported("PostgreSQL needs psycopg: pip install 'gantree[postgres]'")
    return parsed.set(drivername="postgresql+psycopg")


def _database(url: URL, limits: Limits) -> Database:
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        pool_use_lifo=True,
        connect_args=_parameters(url.query, limits),
    )
    event.listen(engine, "connect", _end_with_client)
    event.listen(engine, "checkout", _check_not_ended)
    shown = f"postgresql://{url.username or ''}@{url.host or ''}"
    name = f"{shown}{f':{url.port}' if url.port else ''}/{url.database}"
    secrets = [url.password, url.query.get("password"), url.query.get("sslpassword")]
    return Database(
        engine,
        name,
        "BEGIN",
        NOW,
        owned=False,
        clear=CLEAR,
        is_ended=_is_ended,
        together=_together,
        secrets=tuple(str(each) for each in secrets if each),
    )


@contextmanager
def _together(connection: Any) -> Iterator[Sync]:
    """Psycopg's pipeline: a round trip costs the way there and back, and a thread's wait for the interpreter."""
    with connection.pipeline() as pipeline:
        yield pipeline.sync


def _end_with_client(connection: Any, *_: object) -> None:
    """Where the server can, it looks whether we are still there while it works, or waits for a lock, for us."""
    if connection.info.server_version >= LOOKS_FOR_CLIENTS:
        connection.execute(f"SET client_connection_check_interval = {LOOK_FOR_CLIENT_MS}")


def _check_not_ended(connection: Any, *_: object) -> None:
    """Where the server has ended a connection, the pool opens another."""
    if _is_ended(connection):
        raise DisconnectionError


def _is_ended(connection: Any) -> bool:
    """A server that says something unasked ends the connection. Costs microseconds."""
    if connection.closed:
        return True
    said = poll()
    said.register(connection.fileno(), POLLIN)
    return bool(said.poll(0))


def _parameters(query: Mapping[str, str | tuple[str, ...]], limits: Limits) -> dict[str, object]:
    """What libpq is told beside the URL; what the URL says itself wins, but for the end of idle transactions."""
    ours: dict[str, object] = {**limits.parameters, "application_name": "gantree"}
    told = {key: value for key, value in ours.items() if key not in query}
    options = query.get("options", "")
    given = options if isinstance(options, str) else " ".join(options)
    return told | {"options": f"{given} {limits.settings}".strip()}
