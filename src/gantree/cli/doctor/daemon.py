"""Checks of the daemon: whether one answers, is ready, has the version of this program, and has its port."""

import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gantree import __version__
from gantree.api.client.client import Client
from gantree.api.client.request import Json, Request
from gantree.api.http import unix_socket
from gantree.cli.doctor.finding import Daemon, Finding, Subject, fail, ok, warn
from gantree.model.errors import GantreeError

T = TypeVar("T")
ANSWER_WITHIN_S = 5.0
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")
_LISTENING = "0A"


def daemon_at(client: Client) -> Daemon | str:
    """The daemon, or why there is none."""
    try:
        health: Json = _within(client.health)
    except (GantreeError, OSError) as error:
        return str(error)
    try:
        _within(lambda: client.send(Request[Json]("GET", "/readyz")))
        not_ready = ""
    except (GantreeError, OSError) as error:
        not_ready = str(error)
    return Daemon(health["pid"], health["version"], not_ready, client.state_dir is not None)


def _within(call: Callable[[], T]) -> T:
    """What a call gives. Raises TimeoutError, and what it raises."""
    outcome: list[T | GantreeError | OSError] = []

    def run() -> None:
        try:
            outcome.append(call())
        except (GantreeError, OSError) as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_WITHIN_S)
    if not outcome:
        raise TimeoutError(f"it does not answer within {ANSWER_WITHIN_S:g} s")
    if isinstance(outcome[0], GantreeError | OSError):
        raise outcome[0]
    return outcome[0]


def check_daemon(subject: Subject, absent: str) -> Iterator[Finding]:
    """Whether it answers, is ready, and is of this version. absent: why there is none."""
    daemon = subject.daemon
    if daemon is None:
        yield _absent(subject, absent)
        return
    yield ok("daemon", f"process {daemon.pid} answers")
    if daemon.not_ready:
        yield fail(
            "ready", daemon.not_ready, "see the daemon's log; docs/operations.md has the causes"
        )
    else:
        yield ok("ready", "it makes steps, and its journal takes them")
    if daemon.version != __version__:
        found = f"the daemon is {daemon.version}, this program {__version__}"
        yield warn(
            "version", found, "restart the daemon, or install its version; gangs keep running"
        )
    else:
        yield ok("version", f"daemon and program are {__version__}")


def _absent(subject: Subject, absent: str) -> Finding:
    path = subject.state_dir / unix_socket.FILE
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        is_socket = None
    if is_socket is False:
        return fail("daemon", f"{path} is in the way: it is no socket", f"move {path} elsewhere")
    holder = unix_socket.starting_daemon(subject.state_dir)
    if holder is not None:
        fix = "wait; if that takes minutes, see its log. kill -9 is safe, gangs keep running"
        return fail("daemon", f"process {holder} holds the directory and does not answer", fix)
    if is_socket:
        fix = "start one: gantree up; it replaces the socket"
        return warn("daemon", f"{path} was left by a daemon that is gone", fix)
    return warn("daemon", absent.partition(";")[0], "start one: gantree up")


def check_port(subject: Subject) -> Iterator[Finding]:
    """Whether the address to listen at is free, or held by the daemon."""
    if subject.listen is None:
        return
    match = _ADDRESS.fullmatch(subject.listen)
    if match is None or int(match[3]) > 65535:
        yield fail("port", f"{subject.listen!r} is no address", "HOST:PORT, or [IPv6]:PORT")
        return
    host, port = match[1] or match[2], int(match[3])
    try:
        _bind(host, port)
        yield ok("port", f"{subject.listen} is free")
    except OSError as error:
        holders = holders_of(port)
        if subject.daemon is not None and subject.daemon.pid in holders:
            yield ok("port", f"{subject.listen} is held by the daemon")
            return
        by = f" (process {', '.join(map(str, holders))})" if holders else ""
        reason = (error.strerror or str(error)).lower()
        fix = "choose another address for --listen, or end what holds it"
        yield fail("port", f"{subject.listen}: {reason}{by}", fix)


def _bind(host: str, port: int) -> None:
    """Listen there for a moment. Raises OSError."""
    family, kind, number, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, number) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)


def holders_of(port: int) -> list[int]:
    """The processes of ours that listen at a port of TCP."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port)}
    return [pid for pid in _processes() if wanted & _descriptors(pid)] if wanted else []


def _listening(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (Path("/proc/net") / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _descriptors(pid: int) -> set[str]:
    found: set[str] = set()
    with suppress(OSError):
        for path in (Path("/proc") / str(pid) / "fd").iterdir():
            with suppress(OSError):
                found.add(str(path.readlink()))
    return found
