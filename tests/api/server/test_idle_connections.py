"""A daemon with 300 descriptors, and clients without a token that hold connections: it goes on all the same."""

import json
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from gantree.api.client.client import Client
from support.daemon import unended

SOFT, HARD = 250, 300
HEADER_TIMEOUT_S = 2
CLUSTER = """
name: one
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: n0, machine: m2}]
"""
JOB = "name: NAME\ngang: [{role: w, members: 1, each: {gpus: 1}, run: [sh, -c, 'ulimit -Sn']}]\n"


class Limited:
    """`gantree up` with few descriptors, and what it has printed."""

    def __init__(self, home: Path) -> None:
        self.state, self._log = home / "state", home / "daemon.log"
        (home / "cluster.yaml").write_text(CLUSTER)
        command = (
            f"ulimit -Sn {SOFT} && ulimit -Hn {HARD} && exec {sys.executable} -m gantree.cli up"
            f" --cluster {home}/cluster.yaml --state {self.state} --listen 127.0.0.1:0"
            f" --header-timeout {HEADER_TIMEOUT_S}"
        )
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(["bash", "-c", command], stdout=log, stderr=log)
        self.client = Client(self.state)

    @property
    def printed(self) -> str:
        return self._log.read_text()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(re.findall(r"http://127\.0\.0\.1:(\d+)", self.printed)[-1])

    def over_tcp(self) -> Client:
        host, port = self.address
        return Client(f"http://{host}:{port}", (self.state / "token").read_text().strip())

    def timed_out(self) -> float:
        """Connections over TCP that took too long, as its metrics have it."""
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(str(self.state / "gantree.sock"))
            asks.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            told = received(asks).decode()
        name = 'gantree_connections_ended_total{cause="timed out",listener="tcp"} '
        return next(
            (float(line.split()[-1]) for line in told.splitlines() if line.startswith(name)), 0.0
        )

    def wait_until_ready(self) -> None:
        while " ready: " not in self.printed:
            assert self.process.poll() is None, self.printed
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    limited = Limited(tmp_path_factory.mktemp("limited"))
    try:
        limited.wait_until_ready()
        yield limited
        for job in unended(limited.client):
            limited.client.cancel(job)
    finally:
        limited.process.terminate()
        limited.process.wait(300)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """The sockets that a test holds open."""
    with ExitStack() as sockets:
        yield sockets


def connect(
    daemon: Limited, held: ExitStack, count: int, content: bytes = b""
) -> list[socket.socket]:
    made = []
    for _ in range(count):
        one = held.enter_context(socket.create_connection(daemon.address, 300))
        with suppress(ConnectionError):  # it gave way to another already
            one.sendall(content)
        made.append(one)
    return made


def received(one: socket.socket) -> bytes:
    """All that comes until it is closed."""
    came = b""
    with suppress(ConnectionError):
        while part := one.recv(4096):
            came += part
    return came


def test_the_daemon_takes_all_descriptors_that_it_may_and_jobs_get_what_it_was_started_with(
    daemon: Limited,
) -> None:
    assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE) == (HARD, HARD)
    daemon.client.submit(JOB.replace("NAME", "limits"))
    assert daemon.client.job("limits", wait_s=300)["phase"] == "succeeded"
    assert b"".join(daemon.client.logs("limits")).decode().split()[-1] == str(SOFT)


def test_six_hundred_connections_that_send_nothing_keep_nobody_out(
    daemon: Limited, held: ExitStack
) -> None:
    connect(daemon, held, 600)
    daemon.client.submit(JOB.replace("NAME", "through"))
    assert daemon.client.job("through", wait_s=300)["phase"] == "succeeded"
    assert daemon.over_tcp().job("through")["phase"] == "succeeded"
    assert len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir())) < HARD
    assert "no step was made" not in daemon.printed
    assert "Too many open files" not in daemon.printed


def test_a_stream_of_an_authenticated_caller_goes_on_beside_them(
    daemon: Limited, held: ExitStack
) -> None:
    events = daemon.over_tcp().events()
    daemon.client.submit(JOB.replace("NAME", "first"))
    next(events)
    for one in connect(daemon, held, 200):
        assert received(one) == b""  # it gave way, or its time was over
    daemon.client.submit(JOB.replace("NAME", "second"))
    assert any("second" in str(event) for event in events)


@pytest.mark.parametrize(
    "half",
    [
        b"GET /v1/health HTTP/1.1\r\nX-Slow:",
        b"POST /v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n{",
    ],
)
def test_a_request_that_never_ends_is_ended(daemon: Limited, held: ExitStack, half: bytes) -> None:
    before = daemon.timed_out()
    for one in connect(daemon, held, 20, half):
        assert received(one).startswith(b"HTTP/1.1 408 ")
    while daemon.timed_out() < before + 20:  # they are counted once a second
        time.sleep(0.1)


@pytest.mark.parametrize(
    "request_line",
    [b"GET /v1/jobs?x=" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"no HTTP at all\r\n\r\n"],
)
def test_what_is_no_request_is_answered_by_a_problem(
    daemon: Limited, held: ExitStack, request_line: bytes
) -> None:
    (one,) = connect(daemon, held, 1, request_line)
    head, _, body = received(one).partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body) == {
        "title": "Bad Request", "status": 400, "detail": "Invalid HTTP request received."
    }  # fmt: skip


def test_a_connection_that_is_idle_after_an_answer_is_ended(
    daemon: Limited, held: ExitStack
) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    (one,) = connect(daemon, held, 1, ask)
    assert received(one).startswith(b"HTTP/1.1 200 ")
