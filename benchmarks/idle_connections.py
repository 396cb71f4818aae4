"""What idle and slow connections without a token cost a daemon: decisions and requests over its Unix socket.

A real daemon on 16 virtual nodes whose GPUs are all taken. A process of its own holds connections over TCP, from
addresses of 127.0.1.0/24: idle ones, which send nothing, and slow ones, which send a letter of a header each second;
one that the daemon ends is opened again. Meanwhile one client hands in a job over the Unix socket and reads it as soon
as it is decided about (`decision`), asks for the daemon's health (`request`), and cancels the job. Runs without and
with connections take turns; the figures are medians over the runs of each, and the ratio of these.

    PYTHONPATH=tests python benchmarks/idle_connections.py [--idle 2000] [--slow 200] [--rounds 5] [--requests 1000]
"""

import argparse
import json
import multiprocessing
import os
import re
import selectors
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any

from gantree.api.http import unix_socket
from loading import CLUSTER, TAKEN, Daemon, job, percentiles_ms

ADDRESSES = 20
PATIENCE_S = 300.0
SLOW_HEAD = b"GET /v1/health HTTP/1.1\r\nX-Slow: "
FIGURES = ("decision", "request")


class Kept(HTTPConnection):
    """A kept connection to the Unix socket."""

    def __init__(self, state: Path) -> None:
        super().__init__("localhost")
        self._state = state

    def connect(self) -> None:
        """Connect to the daemon of the directory."""
        self.sock = unix_socket.connect(self._state, PATIENCE_S)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send one request and read its answer."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        self.request(method, path, None if body is None else json.dumps(body), headers)
        response = self.getresponse()
        answer = json.loads(response.read())
        if response.status >= 400:
            raise SystemExit(f"refused: {answer}")
        return answer


def hold(port: int, idle: int, slow: int, pause_s: float, is_held: Event, over: Event) -> None:
    """Hold that many connections until it is over; what the daemon ends is opened again after a pause."""
    os.nice(10)  # it stands for other machines
    sockets: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as held:

        def connect(number: int) -> None:
            sockets[number] = _connected(port, number, is_slow=number >= idle)
            held.register(sockets[number], selectors.EVENT_READ, number)

        for number in range(idle + slow):
            connect(number)
        is_held.set()
        turn, ended = 0, deque[tuple[float, int]]()
        while not over.is_set():
            while ended and ended[0][0] <= time.monotonic():
                connect(ended.popleft()[1])
            due = time.monotonic() + 1.0 / max(1, slow)  # each in its turn, as clients of their own
            while (left_s := due - time.monotonic()) > 0:
                for key, _ in held.select(left_s):
                    if _has_ended(sockets[key.data]):
                        held.unregister(key.fileobj)
                        sockets[key.data].close()
                        ended.append((time.monotonic() + pause_s, key.data))
            if slow:
                turn = (turn + 1) % slow
                with suppress(OSError):  # it was ended: seen in a moment
                    sockets[idle + turn].send(b"a")


def _connected(port: int, number: int, *, is_slow: bool) -> socket.socket:
    source = (f"127.0.1.{1 + number % ADDRESSES}", 0)
    made = socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=source)
    if is_slow:
        made.send(SLOW_HEAD)
    made.setblocking(False)
    return made


def _has_ended(one: socket.socket) -> bool:
    try:
        return not one.recv(4096)
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextmanager
def holding(port: int, idle: int, slow: int, pause_s: float = 0.0) -> Iterator[None]:
    """Connections are held within this block."""
    context = multiprocessing.get_context("spawn")
    is_held, over = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(port, idle, slow, pause_s, is_held, over))
    holder.start()
    try:
        if not is_held.wait(PATIENCE_S):
            raise SystemExit("the connections were not taken")
        yield
    finally:
        over.set()
        holder.join()


def timed(work: Callable[[], object]) -> float:
    """Seconds that it took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run(state: Path, name: str, requests: int) -> dict[str, float]:
    """The 99th percentile of each figure, in milliseconds."""
    daemon = Kept(state)
    took_s: dict[str, list[float]] = {figure: [] for figure in FIGURES}

    def decide(one: str) -> None:
        daemon.ask("POST", "/v1/jobs", {"jobs": [job(one)]})
        daemon.ask("GET", f"/v1/jobs/{one}")

    for number in range(requests):
        one = f"{name}-{number}"
        took_s["decision"].append(timed(lambda one=one: decide(one)))  # type: ignore[misc]  # bound at once
        took_s["request"].append(timed(lambda: daemon.ask("GET", "/v1/health")))
        daemon.ask("POST", f"/v1/jobs/{one}/cancel")
    daemon.close()
    return {figure: percentiles_ms(each)["p99_ms"] for figure, each in took_s.items()}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Take turns, and compare."""
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        daemon = Daemon(Path(directory), CLUSTER + TAKEN, ["--listen", "127.0.0.1:0"])
        daemon.start()
        port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", daemon.log.read_text())[-1])
        try:
            run(daemon.state, "warm", options.requests // 4)
            for number in range(options.rounds):
                found["without"].append(run(daemon.state, f"a{number}", options.requests))
                with holding(port, options.idle, options.slow):
                    found["with"].append(run(daemon.state, f"b{number}", options.requests))
        finally:
            daemon.stop()
    return summary(options, found)


def summary(
    options: argparse.Namespace, found: dict[str, list[dict[str, float]]]
) -> dict[str, Any]:
    """Medians over the runs, and how many times as long it takes beside the connections."""
    told: dict[str, Any] = {"idle": options.idle, "slow": options.slow, "rounds": options.rounds}
    for figure in FIGURES:
        p99_ms = {way: median(each[figure] for each in runs) for way, runs in found.items()}
        told[figure] = {
            **{f"{way}_p99_ms": value for way, value in p99_ms.items()},
            "times": round(p99_ms["with"] / p99_ms["without"], 2),
            "runs_p99_ms": {way: [each[figure] for each in runs] for way, runs in found.items()},
        }
    return told


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--idle", type=int, default=2000, help="connections that send nothing")
    parser.add_argument("--slow", type=int, default=200, help="connections that send slowly")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind, in turn")
    parser.add_argument("--requests", type=int, default=1000, help="jobs of one run")
    options = parser.parse_args()
    print(json.dumps(measure(options), indent=2))


if __name__ == "__main__":
    main()
