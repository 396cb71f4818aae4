"""What 100,000 waiting jobs of arrays cost: decisions, lists, `why`, the first page, `gantree jobs`.

A real daemon on 16 virtual nodes whose GPUs are all taken. Requests are timed over its Unix socket before and after one
user submits ten arrays of 10,000 jobs, half of which can never fit. `decision` is a job of another user that is
submitted and read as soon as it is decided about; `command` is `gantree jobs` as a whole process.

    PYTHONPATH=tests python benchmarks/waiting_arrays.py [--arrays 10] [--requests 300]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from idle_connections import Kept, timed
from loading import CLUSTER, TAKEN, Daemon, job, percentiles_ms

ELEMENTS = 10_000
WAITING_BEFORE = 200


def array(number: int) -> dict[str, Any]:
    """An array of another user; every other one can never fit."""
    members = 1 if number % 2 else 1_000_000
    role = {"role": "w", "members": members, "each": {"gpus": 8}, "run": ["true"]}
    return {"name": f"a{number}", "array": f"0-{ELEMENTS - 1}", "user": "eve", "gang": [role]}


def requests_of(daemon: Kept, arrays: int) -> dict[str, Callable[[str], object]]:
    """What is timed: a request each, but for `decision`."""

    def decide(name: str) -> None:
        daemon.ask("POST", "/v1/jobs", {"jobs": [job(name)]})
        daemon.ask("GET", f"/v1/jobs/{name}")

    element = f"a{arrays - 1}-{ELEMENTS // 2}" if arrays else "w0"
    return {
        "decision": decide,
        "jobs": lambda name: daemon.ask("GET", "/v1/jobs?by=array&limit=500"),
        "jobs, each element": lambda name: daemon.ask("GET", "/v1/jobs?limit=500"),
        "why": lambda name: daemon.ask("GET", "/v1/jobs/w0/why"),
        "why of an element": lambda name: daemon.ask("GET", f"/v1/jobs/{element}/why"),
        "queues": lambda name: daemon.ask("GET", "/v1/queues"),
        "page of jobs": lambda name: page(daemon, "/queue"),
        "first page": lambda name: page(daemon, "/"),
    }


def page(daemon: Kept, path: str) -> None:
    """Read one page."""
    daemon.request("GET", path)
    response = daemon.getresponse()
    response.read()
    if response.status != 200:
        raise SystemExit(f"{path}: {response.status}")


def run(state: Path, prefix: str, arrays: int, requests: int) -> dict[str, Any]:
    """Median and 99th percentile of each request in milliseconds, and the median time of the command."""
    daemon = Kept(state)
    told: dict[str, Any] = {}
    for name, request in requests_of(daemon, arrays).items():
        request(f"{prefix}-warm-{len(told)}")
        took_s = []
        for number in range(requests):
            one = f"{prefix}-{number}"
            took_s.append(timed(partial(request, one)))
            if name == "decision":
                daemon.ask("POST", f"/v1/jobs/{one}/cancel")
        told[name] = percentiles_ms(took_s)
    daemon.close()
    command = [str(Path(sys.executable).with_name("gantree")), "jobs", "--state", str(state)]
    once = lambda: subprocess.run(command, check=True, capture_output=True)  # noqa: E731 - timed below
    told["command"] = {"median_s": round(median(timed(once) for _ in range(5)), 3)}
    return told


def submit(state: Path, arrays: int) -> list[float]:
    """Submit the arrays; milliseconds of each."""
    daemon = Kept(state)
    bodies = [{"jobs": [array(number)]} for number in range(arrays)]
    took_s = [timed(partial(daemon.ask, "POST", "/v1/jobs", body)) for body in bodies]
    daemon.close()
    return [round(each * 1e3, 1) for each in took_s]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Without the arrays, then with them."""
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        daemon = Daemon(Path(directory), CLUSTER + TAKEN)
        daemon.start()
        try:
            waiting = [job(f"w{number}") for number in range(WAITING_BEFORE)]
            Kept(daemon.state).ask("POST", "/v1/jobs", {"jobs": waiting})
            time.sleep(1.0)
            without = run(daemon.state, "before", 0, options.requests)
            submitted_ms = submit(daemon.state, options.arrays)
            beside = run(daemon.state, "after", options.arrays, options.requests)
        finally:
            daemon.stop()
    return {
        "waiting": options.arrays * ELEMENTS,
        "submitted_ms": submitted_ms,
        "without": without,
        "with": beside,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arrays", type=int, default=10, help=f"arrays of {ELEMENTS} jobs")
    parser.add_argument("--requests", type=int, default=300, help="requests of each kind")
    options = parser.parse_args()
    print(json.dumps(measure(options), indent=2))


if __name__ == "__main__":
    main()
