"""`gantree route` and a real daemon: no request fails while a service is scaled, updated and loses a replica."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support.daemon import Daemon
from support.routed import haproxy

SERVER = Path(__file__).parents[2] / "examples" / "services" / "server.py"
CLUSTER = """
name: two
tiers: [leaf, node]
machines: {m8: {gpus: 8, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m8, at: {leaf: l0}}]
"""
WITHIN_S = 120.0


def text(replicas: int, tokens: int) -> str:
    """A job file with the service; other tokens are another revision."""
    run = json.dumps(
        [sys.executable, "-I", "-S", str(SERVER), "--seconds", "0.02", "--tokens", str(tokens)]
    )
    return f"""
kind: service
name: chat
priority: batch
gang: [{{role: server, members: 1, each: {{gpus: 1}}, run: {run}}}]
replicas: {{min: {replicas}, max: 3}}
ready: {{http: /health, every: 100ms}}
restarts: {{backoff: 100ms}}
drain: 2s
route: {{models: [llama], concurrency: 4, wait: 60s}}
"""


class Clients:
    """Threads that ask for completions until they are stopped."""

    def __init__(self, url: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self._url = url
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(6)]
        for each in self._threads:
            each.start()

    def _ask(self) -> None:
        body = json.dumps({"prompt": "hello", "max_tokens": 1, "model": "llama"}).encode()
        while not self._stopped.is_set():
            try:
                with urlopen(f"{self._url}/v1/completions", body, timeout=WITHIN_S) as answer:
                    json.load(answer)
                    self.outcomes[str(answer.status)] += 1
            except Exception as error:
                self.outcomes[f"{time.time():.3f} {error!r}"] += 1

    def more(self) -> None:
        """Wait until some more were answered."""
        least = self.outcomes.total() + 50
        until(lambda: self.outcomes.total() >= least)

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        for each in self._threads:
            each.join()


def until(holds: Callable[[], Any]) -> Any:
    """Wait until something holds; what it gave."""
    deadline_s = time.monotonic() + WITHIN_S
    while not (found := holds()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    haproxy()
    with Daemon(tmp_path / "state", CLUSTER) as running:
        yield running


@pytest.fixture
def url(daemon: Daemon) -> Iterator[str]:
    """Where a router of the daemon listens."""
    command = [sys.executable, "-m", "gantree.cli", "route", "--listen", "127.0.0.1:0"]
    state = ["--state", str(daemon.client.state_dir)]
    with subprocess.Popen([*command, *state], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()


def test_no_request_fails_while_the_daemon_scales_updates_and_replaces_replicas(
    daemon: Daemon, url: str
) -> None:
    client = daemon.client

    def are_ready(count: int, revision: int) -> Callable[[], bool]:
        def look() -> bool:
            row = client.service("chat")
            current = [each for each in row["replicas"] if each["revision"] == revision]
            return bool(row["ready"] == len(current) == len(row["replicas"]) == count)

        return look

    client.submit(text(1, tokens=4))
    until(lambda: "llama" in urlopen(f"{url}/v1/models", timeout=WITHIN_S).read().decode())
    clients = Clients(url)
    until(are_ready(1, 1))
    clients.more()
    client.scale_service("chat", 3)
    until(are_ready(3, 1))
    clients.more()
    client.submit(text(2, tokens=5))
    until(are_ready(3, 2))
    clients.more()
    killed = client.service("chat")["replicas"][0]
    os.kill(_listener(killed["port"]), signal.SIGKILL)
    clients.more()
    until(are_ready(3, 2))
    client.scale_service("chat", 2)
    until(are_ready(2, 2))
    clients.more()
    load = until(lambda: client.service("chat")["load"])
    clients.stop()
    assert set(clients.outcomes) == {"200"}, clients.outcomes
    assert load["rate"] > 0
    client.cancel_service("chat")


def _listener(port: int) -> int:
    """The process that listens at a port."""
    inode = next(
        row.split()[9]
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
    )
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if file.readlink().name == f"socket:[{inode}]":
                return int(file.parts[2])
        except OSError:
            continue
    raise AssertionError(f"nobody listens at {port}")
