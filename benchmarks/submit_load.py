"""Acknowledged submissions a second over HTTP, how long each took, and whether all are there after a kill -9.

A real daemon on 16 virtual nodes whose GPUs are all taken, so that every job waits, and client processes that hand
in jobs over its Unix socket, each request when the one before was answered. The clock runs from the first request to
the last answer. Then the daemon is killed with SIGKILL while they go on, started again, and every job that was
acknowledged must be there.

    python benchmarks/submit_load.py [--jobs 20000] [--clients 16] [--batch 1] [--held]
"""

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from gantree.api import sockets
from gantree.api.client import Client

PATIENCE_S = 120.0
MOST_JOBS = 200_000
PROCESSES = 2
CLUSTER = """
name: bench
tiers: [leaf, node]
nodes: [{names: "n[0-15]", machine: dgx-h100, at: {leaf: l0}}]
allocations:
""" + "".join(
    f"  - {{job: old, node: n{node}, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}}\n" for node in range(16)
)


def job(name: str, held: bool) -> dict[str, Any]:
    """A job as an object."""
    role = {"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["true"]}
    return {"name": name, "gang": [role], "hold": held}


class Connection(HTTPConnection):
    """A connection to the socket that is kept."""

    def __init__(self, state: Path) -> None:
        super().__init__("localhost")
        self._state = state

    def connect(self) -> None:
        """Connect."""
        self.sock = sockets.connect(self._state, PATIENCE_S)


def hand_in(state: Path, name: str, batch: int, requests: int, held: bool) -> list[Any]:
    """One client: (began, took) of each request and the ids that were acknowledged, until the daemon is gone."""
    jobs = [job(f"{name}-{number}", held) for number in range(batch)]
    body = json.dumps({"jobs": jobs, "base_dir": "/tmp"}).encode()
    connection, told = Connection(state), []
    for _ in range(requests):
        began = time.perf_counter()
        try:
            connection.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = json.loads(answer.read())
        except (OSError, HTTPException, ValueError):
            break
        if answer.status != 201:
            raise SystemExit(f"refused: {content}")
        told.append((began, time.perf_counter() - began, [each["job"] for each in content["jobs"]]))
    connection.close()
    return told


def clients(state: Path, name: str, count: int, batch: int, requests: int, held: bool) -> list[Any]:
    """Several clients of one process."""
    with ThreadPoolExecutor(count) as pool:
        waiting = [
            pool.submit(hand_in, state, f"{name}-{number}", batch, requests, held)
            for number in range(count)
        ]
        return [told for each in waiting for told in each.result()]


def load(state: Path, name: str, options: argparse.Namespace, jobs: int) -> Any:
    """All clients at once, from processes of their own; the answer comes when they are done."""
    each = options.clients // PROCESSES
    requests = max(1, jobs // (options.batch * each * PROCESSES))
    pool = multiprocessing.get_context("spawn").Pool(PROCESSES)
    arguments = [
        (state, f"{name}-{number}", each, options.batch, requests, options.held)
        for number in range(PROCESSES)
    ]
    return pool.starmap_async(clients, arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Load, count, kill, count again."""
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        home = Path(directory)
        (home / "cluster.yaml").write_text(CLUSTER)
        state, log = home / "state", home / "daemon.log"
        script = Path(sys.executable).with_name("gantree")
        command = [
            str(script),
            "up",
            "--cluster",
            str(home / "cluster.yaml"),
            "--state",
            str(state),
        ]
        daemon = start(command, log)
        try:
            start_s = spent_s(daemon.pid)
            told: list[Any] = flat(load(state, "job", options, options.jobs).get())
            cpu_s = spent_s(daemon.pid) - start_s
            second = load(state, "late", options, options.jobs // 4)
            time.sleep(2.0)
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            late: list[Any] = flat(second.get(PATIENCE_S))
            daemon = start(command, log)
            there = {row["job"] for row in Client(state).jobs()}
        finally:
            daemon.terminate()
            daemon.wait(PATIENCE_S)
    return figures(options, told, late, there, cpu_s)


def flat(told: list[list[Any]]) -> list[Any]:
    """What all processes told, in one list."""
    return [each for process in told for each in process]


def spent_s(pid: int) -> float:
    """Seconds of processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures(
    options: argparse.Namespace, told: list[Any], late: list[Any], there: set[str], cpu_s: float
) -> dict[str, Any]:
    """What was measured, in figures."""
    took_ms = sorted(took * 1e3 for _, took, _ in told)
    first, last = min(began for began, _, _ in told), max(began + took for began, took, _ in told)
    acknowledged = [each for _, _, ids in [*told, *late] for each in ids]
    measured = sum(len(ids) for _, _, ids in told)
    return {
        "jobs": measured,
        "clients": options.clients,
        "jobs_per_request": options.batch,
        "held": options.held,
        "jobs_per_s": round(measured / (last - first)),
        "requests_per_s": round(len(told) / (last - first)),
        "p50_ms": round(took_ms[len(took_ms) // 2], 1),
        "p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 1),
        "daemon_cpu_ms_per_job": round(cpu_s * 1e3 / measured, 2),
        "acknowledged_before_kill": len(acknowledged),
        "lost": len(set(acknowledged) - there),
        "given_twice": len(acknowledged) - len(set(acknowledged)),
    }


def start(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    """A daemon that answers."""
    before = log.read_text().count(" ready: ") if log.exists() else 0
    with log.open("ab") as output:
        daemon = subprocess.Popen(command, stdout=output, stderr=output)
    deadline = time.monotonic() + PATIENCE_S
    while log.read_text().count(" ready: ") == before:
        if time.monotonic() > deadline or daemon.poll() is not None:
            raise SystemExit(f"the daemon does not answer; it said:\n{log.read_text()}")
        time.sleep(0.02)
    return daemon


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000, help=f"how many, at most {MOST_JOBS}")
    parser.add_argument("--clients", type=int, default=16, help="connections, in two processes")
    parser.add_argument("--batch", type=int, default=1, help="jobs in one request")
    parser.add_argument("--held", action="store_true", help="jobs that are held, not waiting")
    options = parser.parse_args()
    options.jobs = min(options.jobs, MOST_JOBS)
    print(json.dumps(measure(options), indent=2))


if __name__ == "__main__":
    main()
