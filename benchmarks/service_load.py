"""A daemon with a long queue that many watch: how long answers take, and how much memory it has.

10,000 jobs wait on a full cluster. 200 clients listen to the event stream, 20 browsers each hold the stream of the
cluster page and load another page every five seconds, jobs are handed in at a slow pace so that there is something to
tell, and 100 requests a second ask for lists, jobs, reasons, queues and nodes. Requests are due at fixed moments: a
latency counts from then, and one that waits for others counts as long.

    python benchmarks/service_load.py [--pending 10000] [--streams 200] [--reads 100] [--pages 20] [--seconds 60]

With these it takes about two minutes on two idle cores, of which the first goes by while jobs are handed in; progress
is told on standard error, and `--json` is for programs. `resident_MB` is the daemon's process, `readers_MB` the
processes beside it that answer questions. A latency is from when the request was due to the last byte of the answer.
"""

import argparse
import json
import multiprocessing
import os
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import cycle, islice
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from gantree.api.http import unix_socket
from loading import (
    CLUSTER,
    PATIENCE_S,
    TAKEN,
    Daemon,
    database,
    drive,
    job,
    percentiles_ms,
    request,
    resident_MB,
)

BATCH = 100
READS = (
    "/v1/jobs?limit=100",
    "/v1/jobs/job-{n}",
    "/v1/jobs/job-{n}/why",
    "/v1/queues",
    "/v1/jobs?phase=pending&limit=50",
    "/v1/jobs/job-{n}/when",
    "/v1/nodes",
    "/v1/jobs/job-{n}",
)
PAGES = ("/", "/queue", "/queues", "/cluster", "/nodes", "/jobs/job-{n}")
PAGE_EVERY_S = 5.0
SUBMISSIONS_PER_S = 2.0
OK = (200, 201)


def paths(of: Sequence[str], jobs: int) -> Iterator[str]:
    """Without end: each in turn, every time of another job."""
    for number, path in enumerate(cycle(of)):
        yield path.replace("{n}", str(number * 7919 % jobs))


def ask(state: Path, of: Sequence[str], jobs: int, rate: float, seconds: float) -> list[Any]:
    """Ask at a rate for so long: (path, status, took) of each, in no order."""
    wanted = list(islice(paths(of, jobs), int(rate * seconds)))
    told = drive(state, (request("GET", path) for path in wanted), 64, rate)
    began = min((each.due for each in told), default=0.0)
    return [
        (of[round((each.due - began) * rate) % len(of)], each.status, each.took_s) for each in told
    ]


def hand_in(state: Path, seconds: float) -> list[Any]:
    """Jobs at a slow pace."""
    content = request("POST", "/v1/jobs", {"jobs": [job("late")], "base_dir": "/tmp"})
    many = int(SUBMISSIONS_PER_S * seconds)
    told = drive(state, [content] * many, 4, SUBMISSIONS_PER_S)
    return [("POST /v1/jobs", each.status, each.took_s) for each in told]


def listen(state: Path, path: str, count: int, ready: Event, over: Event) -> int:
    """Hold so many streams until it is over; give the bytes that came."""
    came = 0
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            line: socket.socket = unix_socket.connect(state, PATIENCE_S)
            line.sendall(request("GET", path))
            selector.register(line, selectors.EVENT_READ)
        ready.set()
        while not over.is_set():
            for key, _ in selector.select(0.2):
                open_line: Any = key.fileobj
                part = open_line.recv(1 << 18)
                came += len(part)
                if not part:
                    raise SystemExit(f"a stream of {path} ended")
        for key in list(selector.get_map().values()):
            ending: Any = key.fileobj
            ending.close()
    return came


def fill(state: Path, jobs: int) -> None:
    """So many jobs that wait, job-0 and on."""
    for first in range(0, jobs, BATCH):
        body = {"jobs": [job(f"job-{n}") for n in range(first, first + BATCH)], "base_dir": "/tmp"}
        (told,) = drive(state, [request("POST", "/v1/jobs", body)], 1)
        if told.status not in OK:
            raise SystemExit(f"refused: {told.body.decode()}")


def measure(options: argparse.Namespace, daemon: Daemon) -> dict[str, Any]:
    """Fill, listen, ask."""
    context, state = multiprocessing.get_context("spawn"), daemon.state
    say(f"{options.pending} jobs are handed in")
    fill(state, options.pending)
    say(f"asked for {options.seconds:g} s")
    filled = daemon.resident_MB()
    ready, over = [context.Event(), context.Event()], context.Event()
    streams = (("/v1/events", options.streams), ("/cluster/stream", options.pages))
    listeners = [
        context.Process(target=listen, args=(state, path, count, is_ready, over))
        for (path, count), is_ready in zip(streams, ready, strict=True)
    ]
    for each, is_ready in zip(listeners, ready, strict=True):
        each.start()
        is_ready.wait(PATIENCE_S)
    spent_s, began = daemon.spent_s(), time.perf_counter()
    beside_s = sum(map(spent_with_forks_s, below(daemon.pid)))
    with context.Pool(3) as pool:
        pages = options.pages / PAGE_EVERY_S
        asked = [
            pool.apply_async(ask, (state, READS, options.pending, options.reads, options.seconds)),
            pool.apply_async(ask, (state, PAGES, options.pending, pages, options.seconds)),
            pool.apply_async(hand_in, (state, options.seconds)),
        ]
        reads, seen, taken = [each.get() for each in asked]
    took_s = time.perf_counter() - began
    cores = (daemon.spent_s() - spent_s) / took_s
    beside_cores = (sum(map(spent_with_forks_s, below(daemon.pid))) - beside_s) / took_s
    memory = {
        "resident_MB": round(daemon.resident_MB()),
        "readers_MB": [round(resident_MB(pid)) for pid in below(daemon.pid)],
    }
    over.set()
    for each in listeners:
        each.join()
    return {
        "pending": options.pending,
        "resident_MB_before": round(filled),
        **memory,
        "daemon_cores": round(cores, 2),
        "readers_cores": round(beside_cores, 2),
        "streams_broken": sum(each.exitcode != 0 for each in listeners),
        "reads": figures(reads),
        "pages": figures(seen),
        "submissions": figures(taken),
    }


def below(pid: int) -> list[int]:
    """The processes that were forked from one, and from these: the host of readers, the reader, long questions."""
    try:
        forked = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []  # it has ended meanwhile
    return [each for child in map(int, forked) for each in (child, *below(child))]


def spent_with_forks_s(pid: int) -> float:
    """Seconds of a processor that a process has taken, and those that it forked and that have ended."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")


def figures(told: list[Any]) -> dict[str, Any]:
    """Latencies of all and of each kind, and what was refused."""
    of_kind: dict[str, list[float]] = {}
    for path, _, took_s in told:
        of_kind.setdefault(path, []).append(took_s)
    return {
        "requests": len(told),
        "refused": sum(status not in OK for _, status, _ in told),
        **percentiles_ms(took_s for _, _, took_s in told),
        "of_kind": {path: percentiles_ms(took_s) for path, took_s in of_kind.items()},
    }


def table(found: dict[str, Any]) -> str:
    """The figures for people: one line for each kind, then the memory."""
    head = f"{'':38} {'requests':>8} {'refused':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}"
    lines = [head]
    for group in ("reads", "pages", "submissions"):
        told = found[group]
        lines.append(_line(f"all {group}", told, told["requests"], told["refused"]))
        lines += [_line(f"  {path}", each) for path, each in told["of_kind"].items()]
    plain = {name: value for name, value in found.items() if not isinstance(value, dict)}
    return "\n".join([*lines, *(f"{name:30} {value}" for name, value in plain.items())])


def _line(name: str, told: dict[str, Any], requests: object = "", refused: object = "") -> str:
    took = " ".join(f"{told.get(each, 0.0):>8.1f}" for each in ("p50_ms", "p99_ms", "max_ms"))
    return f"{name:38} {requests:>8} {refused:>8} {took}"


def say(what: str) -> None:
    """How far it is, for whoever waits."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=200, help="listeners to events")
    parser.add_argument("--reads", type=float, default=100, help="API reads a second")
    parser.add_argument("--pages", type=int, default=20, help="browsers")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        home = Path(directory)
        home.chmod(0o711)  # PostgreSQL runs as another user where we are root
        with database(options.database, home) as named:
            daemon = Daemon(home, CLUSTER + TAKEN, named)
            daemon.start()
            try:
                found = measure(options, daemon)
                print(json.dumps(found, indent=2) if options.json else table(found))
            finally:
                with suppress(ProcessLookupError):
                    daemon.stop()


if __name__ == "__main__":
    main()
