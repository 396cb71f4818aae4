"""Several real daemons on one PostgreSQL and one state directory, for tests of who leads: killed, stopped, cut off.

    with Fleet(tmp_path / "state", database_url, CLUSTER, ("a", "b")) as fleet:
        fleet.client.submit("name: j\\n...")
        fleet.kill(fleet.leader())
        fleet.client.jobs()                     # of the one that took over

Each is forked into the command line (`gantree up`). Between a daemon and the database there may be a `Cable`, which a
test cuts. At the end of the block every job is cancelled and waited for.
"""

import re
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gantree.api.client.client import Client
from gantree.model.errors import GantreeError
from support.daemon import start_nursery, unended
from support.nursery import Born

LEASE_S = 10.0
"""Machines of tests stall for seconds; who leads changes when a test wants it to, not then."""
READY_WITHIN_S = 300.0
"""How long a test waits for what must come, on a machine that is shared with many."""
STALL = ("--stall", "900")
"""A daemon whose database is cut off may wait for it as long as a test lasts, and does not end itself meanwhile."""


class Cable:
    """A Unix socket that leads to a PostgreSQL server, for one daemon; it can be cut, and mended."""

    def __init__(self, server: Path, place: Path) -> None:
        """server and place are directories: the one with the server's socket, and the one to make ours in."""
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self._server = str(server / ".s.PGSQL.5432")
        self._is_cut = False
        self._ends: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(place / ".s.PGSQL.5432"))
        self._listener.listen(64)
        threading.Thread(target=self._take, daemon=True).start()

    def cut(self) -> None:
        """Nothing goes through any more, and nobody is told: what was sent is lost."""
        self._is_cut = True

    def mend(self) -> None:
        """New connections go through; those that were cut end. Nothing happens to one that is whole."""
        if not self._is_cut:
            return
        self._is_cut = False
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take it away."""
        self._listener.close()
        self.cut()
        self.mend()

    def _take(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                far.connect(self._server)
            except OSError:
                near.close()
                continue
            self._ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self._is_cut:
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Fleet:
    """The daemons by name. client tries all of them, url_of is where one answers over TCP."""

    def __init__(
        self,
        state_dir: Path,
        database_url: str,
        cluster_text: str | None,
        names: Sequence[str],
        lease_s: float = LEASE_S,
        more: Sequence[str] = STALL,
    ) -> None:
        """The daemons get ports that the system gives. cluster_text None: the cluster is on record.

        more are options of `gantree up`. Daemons in `hanging` are born as `support.hanging` has it.
        """
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.state_dir, self.names = state_dir, tuple(names)
        self.local = Client(state_dir)
        self.url_of: dict[str, str] = {}
        self._named: list[str] = []
        self.hanging: set[str] = set()
        self._lease_s, self._more = lease_s, tuple(more)
        if cluster_text is not None:
            file = state_dir / "cluster-of-test.yaml"
            file.write_text(cluster_text)
            self._named = ["--cluster", str(file)]
        self._database_of = dict.fromkeys(names, database_url)
        self._process_of: dict[str, Born] = {}
        self._printed_before = dict.fromkeys(names, 0)

    def connect(self, name: str, database_url: str) -> None:
        """Another way to the database for one of them, from its next start on."""
        self._database_of[name] = database_url

    @property
    def token(self) -> str:
        """What the daemons want to be shown over TCP."""
        return (self.state_dir / "token").read_text().strip()

    @property
    def client(self) -> Client:
        """Tries all of them."""
        return Client(",".join(self.url_of[name] for name in self.names), self.token)

    def output(self, name: str) -> str:
        """What its last process has printed."""
        path = self.state_dir / f"{name}.out"
        return path.read_bytes()[self._printed_before[name] :].decode(errors="replace")

    def forget_output(self, name: str) -> None:
        """What it has printed so far does not count for `output` any more."""
        self._printed_before[name] = (self.state_dir / f"{name}.out").stat().st_size

    def pid(self, name: str) -> int:
        """Its process."""
        return self._process_of[name].pid

    def until_running(self, job: str) -> None:
        """Wait until a job runs."""
        assert self.client.job(job, wait_s=READY_WITHIN_S, until="running")["phase"] == "running"

    def until_ended(self, job: str) -> str:
        """Wait until a job has ended; its phase."""
        phase: str = self.client.job(job, wait_s=READY_WITHIN_S)["phase"]
        return phase

    def restore(self) -> None:
        """All daemons run, and no job does."""
        for name, process in self._process_of.items():
            process.send_signal(signal.SIGCONT)
            if process.poll() is not None:
                self.start(name)
        self._cancel_all()

    def start(self, name: str) -> None:
        """Start one, and wait until it leads or stands by. RuntimeError, with what it printed, if it ends instead."""
        self.spawn(name)
        self.until_said(name, " (ready|stands by): .*http")
        self.url_of[name] = re.findall(r"https?://[^\s,;]+$", self.output(name), re.MULTILINE)[-1]

    def spawn(self, name: str) -> None:
        """Start one and do not wait for it. It listens where it did before."""
        address = self.url_of.get(name, "http://127.0.0.1:0").partition("://")[2]
        with (self.state_dir / f"{name}.out").open("ab") as output:
            self._printed_before[name] = output.tell()
            self._process_of[name] = start_nursery().bear(
                [
                    *(["hanging"] if name in self.hanging else []),
                    "up", "--name", name, "--listen", address, "--state", str(self.state_dir),
                    "--lease", f"{self._lease_s:g}", *self._named, *self._more,
                ],
                output.fileno(),
                {"GANTREE_DATABASE": self._database_of[name]},
            )  # fmt: skip

    def until_said(self, name: str, pattern: str) -> None:
        """Wait until its last process has printed this. RuntimeError, with what it printed, if it ends instead."""
        deadline = time.monotonic() + READY_WITHIN_S
        while not re.search(pattern, said := self.output(name)):
            if self._process_of[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} never said {pattern!r}: {said}")
            time.sleep(0.01)

    def leader(self) -> str:
        """Who leads, as it says itself, once somebody does."""
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            for name in self.names:
                if self.leads(name):
                    return name
            time.sleep(0.02)
        raise AssertionError({name: self.output(name) for name in self.names})

    def leads(self, name: str) -> bool:
        """Whether one says that it leads."""
        return b" 200 " in self._readiness(name)

    def until_warm(self, name: str) -> None:
        """Wait until one that stands by says that it has read the journal ahead."""
        deadline = time.monotonic() + READY_WITHIN_S
        while b'"warm":true' not in self._readiness(name):
            assert time.monotonic() < deadline, self.output(name)
            time.sleep(0.1)

    def _readiness(self, name: str) -> bytes:
        """What one answers at /readyz; nothing if it does not."""
        at = self.url_of[name].partition("://")[2]
        told = b""
        with suppress(OSError), socket.create_connection(_address(at), timeout=0.5) as asked:
            asked.settimeout(1.0)
            asked.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while more := asked.recv(4096):
                told += more
        return told

    def kill(self, name: str) -> None:
        """kill -9."""
        self.signal(name, signal.SIGKILL)
        self._process_of[name].wait()

    def stop(self, name: str) -> int:
        """SIGTERM; give the exit status."""
        self.signal(name, signal.SIGTERM)
        return self._process_of[name].wait(timeout=READY_WITHIN_S)

    def ended(self, name: str) -> int:
        """Wait until one has ended by itself; give the exit status."""
        return self._process_of[name].wait(timeout=READY_WITHIN_S)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal."""
        self._process_of[name].send_signal(number)

    def __enter__(self) -> Self:
        try:
            for name in self.names:
                self.start(name)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._process_of.values():
            process.send_signal(signal.SIGCONT)
        try:
            if kind is None or any(each.poll() is None for each in self._process_of.values()):
                self._cancel_all()
            for name in self.names:
                if self._process_of[name].poll() is None:
                    self.stop(name)
        finally:
            self._kill_all()

    def _kill_all(self) -> None:
        for process in self._process_of.values():
            process.kill()
            process.wait()

    def _cancel_all(self) -> None:
        client = self.client
        left = unended(client)
        for job in left:
            with suppress(GantreeError):  # it ended by itself in between
                client.cancel(job)
        for job in left:
            client.job(job, wait_s=READY_WITHIN_S)


def _address(at: str) -> tuple[str, int]:
    host, _, port = at.rpartition(":")
    return host, int(port)
