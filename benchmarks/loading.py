"""A daemon under load: starting one, and clients so cheap that they hardly take time from it. For benchmarks only.

Requests are bytes made beforehand, sent over kept connections by one thread that waits for all of them at once. With a
rate, a request is due at a moment and how long it took counts from then, also where it had to wait for a connection
(so a daemon that stalls is not asked less); without, each connection sends its next as soon as it is answered.
"""

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gantree.api.http import unix_socket
from support.postgres import Server

PATIENCE_S = 300.0
NODES = 16
CLUSTER = f"""
name: bench
tiers: [leaf, node]
nodes: [{{names: "n[0-{NODES - 1}]", machine: dgx-h100, at: {{leaf: l0}}}}]
"""
TAKEN = "allocations:\n" + "".join(
    f"  - {{job: old, node: n{node}, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}}\n" for node in range(NODES)
)
"""With this, every GPU is taken, and every job waits."""


@dataclass(frozen=True, slots=True)
class Told:
    """One answer: when it was due and how long it took, in seconds of `time.perf_counter`, its status and body."""

    due: float
    took_s: float
    status: int
    body: bytes


def request(method: str, path: str, body: object = None, headers: Sequence[str] = ()) -> bytes:
    """A request as bytes."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if content:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


def job(name: str, held: bool = False) -> dict[str, Any]:
    """A job as an object."""
    role = {"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["true"]}
    return {"name": name, "gang": [role], "hold": held}


@dataclass(slots=True)
class _Line:
    """A kept connection, what it waits for, and what has come of it."""

    socket: socket.socket
    due: float | None = None
    came: bytearray = field(default_factory=bytearray)

    def send(self, content: bytes, due: float) -> None:
        """Send a request; it is small, so it fits into the buffer of the socket."""
        self.due = due
        self.socket.sendall(content)

    def read(self) -> Told | None:
        """The answer, once it is there as a whole. Raises ConnectionError."""
        part = self.socket.recv(1 << 18)
        if not part:
            raise ConnectionResetError("the daemon has gone")
        self.came += part
        end = self.came.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self.came[:end]).lower()
        at = head.index(b"content-length:") + len(b"content-length:")
        length = int(head[at:].partition(b"\r\n")[0])
        if len(self.came) < end + 4 + length:
            return None
        body, due = bytes(self.came[end + 4 :]), self.due
        assert due is not None, "an answer that nobody waits for"
        self.came.clear()
        self.due = None
        return Told(due, time.perf_counter() - due, int(head[9:12]), body)


def drive(
    state: Path, requests: Iterable[bytes], connections: int, rate_per_s: float | None = None
) -> list[Told]:
    """Send all requests to a daemon, as `drive_at`."""
    return drive_at(
        lambda: unix_socket.connect(state, PATIENCE_S), requests, connections, rate_per_s
    )


def drive_at(
    connect: Callable[[], socket.socket],
    requests: Iterable[bytes],
    connections: int,
    rate_per_s: float | None = None,
    selector_of: Callable[[], selectors.BaseSelector] = selectors.DefaultSelector,
) -> list[Told]:
    """Send all requests and give the answers; ends early, with those that came, where the server is gone.

    The default selector waits for whole milliseconds, SelectSelector for as long as it is told.
    """
    told: list[Told] = []
    waiting: Iterator[bytes] = iter(requests)
    with selector_of() as selector:
        lines = [_connected(connect, selector) for _ in range(connections)]
        try:
            _drive(connect, selector, lines, waiting, rate_per_s, told)
        except OSError:
            pass  # killed: what was told stands
        finally:
            for key in list(selector.get_map().values()):
                key.data.socket.close()
    return told


def _connected(connect: Callable[[], socket.socket], selector: selectors.BaseSelector) -> _Line:
    line = _Line(connect())
    selector.register(line.socket, selectors.EVENT_READ, line)
    return line


def _drive(
    connect: Callable[[], socket.socket],
    selector: selectors.BaseSelector,
    lines: Sequence[_Line],
    waiting: Iterator[bytes],
    rate_per_s: float | None,
    told: list[Told],
) -> None:
    idle, began, sent = list(lines), time.perf_counter(), 0
    upcoming = next(waiting, None)
    while upcoming is not None or len(idle) < len(lines):
        now = time.perf_counter()
        pause_s: float | None = None
        while upcoming is not None and idle:
            due = now if rate_per_s is None else began + sent / rate_per_s
            if due > now:
                pause_s = due - now
                break
            idle.pop().send(upcoming, due)
            sent, upcoming = sent + 1, next(waiting, None)
        for key, _ in selector.select(pause_s):
            line: _Line = key.data
            if line.due is None:  # the daemon closes what was idle for long
                idle.remove(line)
                selector.unregister(line.socket)
                line.socket.close()
                idle.append(_connected(connect, selector))
                continue
            answer = line.read()
            if answer is not None:
                told.append(answer)
                idle.append(line)


# ----- the daemon


@contextmanager
def database(kind: str, home: Path) -> Iterator[list[str]]:
    """What `gantree up` is told to keep its journal in: nothing for SQLite, a server of its own for PostgreSQL."""
    if kind == "sqlite":
        yield []
        return
    server = Server(home / "postgres", durable=True)
    server.start()
    try:
        with server.database() as url:
            yield ["--database", url]
    finally:
        server.stop()


class Daemon:
    """`gantree up` in a process of its own.

    run_by are words before the command; files is where what is not its state goes, home where that is None.
    """

    def __init__(
        self,
        home: Path,
        cluster: str,
        options: Sequence[str] = (),
        *,
        run_by: Sequence[str] = (),
        files: Path | None = None,
    ) -> None:
        files = files or home
        self.state, self.log = home / "state", files / "daemon.log"
        (files / "cluster.yaml").write_text(cluster)
        script = Path(sys.executable).with_name("gantree")
        named = ["--cluster", str(files / "cluster.yaml"), "--state", str(self.state)]
        self._command = [*run_by, str(script), "up", *named, *options]
        self.process: subprocess.Popen[bytes] | None = None
        self._size = 0

    def spawn(self) -> None:
        """Start it, and do not wait."""
        with self.log.open("ab") as output:
            self._size = output.tell()
            self.process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def start(self) -> float:
        """Start it and wait until it answers; give the seconds that took."""
        began = time.monotonic()
        self.spawn()
        while b" ready: " not in self.log.read_bytes()[self._size :]:
            if time.monotonic() - began > PATIENCE_S or self._has_ended():
                raise SystemExit(f"the daemon does not answer; it said:\n{self.log.read_text()}")
            time.sleep(0.01)
        return time.monotonic() - began

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self.process is not None, "it was never started"
        return self.process.pid

    def kill(self) -> None:
        """kill -9, at once."""
        assert self.process is not None, "it was never started"
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it end by itself."""
        assert self.process is not None, "it was never started"
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def spent_s(self) -> float:
        """Seconds of processor time that it has taken so far."""
        return spent_s(self.pid)

    def resident_MB(self) -> float:
        """Memory that it has resident now."""
        return resident_MB(self.pid)

    def children(self) -> list[int]:
        """The processes that it has started and that are there."""
        told = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(each) for each in told]


def spent_s(pid: int) -> float:
    """Seconds of processor time that a process has taken so far."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def resident_MB(pid: int) -> float:
    """Memory that a process has resident now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def percentiles_ms(took_s: Iterable[float]) -> dict[str, float]:
    """By nearest rank."""
    ordered = sorted(took_s)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {
        name: round(1e3 * ordered[min(last, int(len(ordered) * share))], 1)
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0))
    }
