"""Acknowledged submissions a second over HTTP: how long each took, and what a job costs the daemon.

A real daemon on 16 virtual nodes whose GPUs are all taken, so that every job waits, and client processes that hand
in jobs over its Unix socket. An answer means that the jobs are durable; `kills.py` shows that they are. With --rate,
jobs are offered at that many a second, however fast they are answered, and a latency counts from the moment that a
request was due; without it every connection hands in its next when the one before was answered.

    python benchmarks/submit_load.py [--jobs 20000] [--clients 32] [--batch 1] [--rate 1000] [--database postgres]

`daemon_cpu_ms_per_job` is the processor time of the daemon over the jobs: it says the same on a busy machine.
"""

import argparse
import json
import multiprocessing
import tempfile
from itertools import repeat
from pathlib import Path
from typing import Any

from loading import CLUSTER, TAKEN, Daemon, Told, database, drive, job, percentiles_ms, request

MOST_JOBS = 1_000_000
PROCESSES = 2
CREATED = 201


def clients(
    state: Path, name: str, connections: int, batch: int, requests: int, rate: float | None
) -> list[tuple[float, float, list[str]]]:
    """The clients of one process: when each request was due, how long it took, the ids that were acknowledged."""
    jobs = [job(f"{name}-{number}") for number in range(batch)]
    content = request("POST", "/v1/jobs", {"jobs": jobs, "base_dir": "/tmp"})
    told = drive(state, repeat(content, requests), connections, rate)
    return [(each.due, each.took_s, ids_of(each)) for each in told]


def ids_of(told: Told) -> list[str]:
    """The jobs that an answer acknowledges."""
    if told.status != CREATED:
        raise SystemExit(f"refused: {told.body.decode()}")
    return [each["job"] for each in json.loads(told.body)["jobs"]]


def load(state: Path, name: str, options: argparse.Namespace, jobs: int) -> list[Any]:
    """All clients at once, from processes of their own."""
    requests = max(1, jobs // (options.batch * PROCESSES))
    rate = options.rate and options.rate / options.batch / PROCESSES
    each = max(1, options.clients // PROCESSES)
    arguments = [
        (state, f"{name}-{number}", each, options.batch, requests, rate)
        for number in range(PROCESSES)
    ]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        return [told for process in pool.starmap(clients, arguments) for told in process]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Warm up, load, count."""
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        home = Path(directory)
        home.chmod(0o711)  # PostgreSQL runs as another user where we are root
        with database(options.database, home) as named:
            daemon = Daemon(home, CLUSTER + TAKEN, named)
            daemon.start()
            try:
                load(daemon.state, "warm", options, max(1000, options.batch * 4))
                spent_s = daemon.spent_s()
                told = load(daemon.state, "job", options, options.jobs)
                figures = {
                    "daemon_cpu_s": daemon.spent_s() - spent_s,
                    "resident_MB": round(daemon.resident_MB()),
                }
            finally:
                daemon.stop()
    return summary(options, told, figures)


def summary(
    options: argparse.Namespace, told: list[Any], figures: dict[str, float]
) -> dict[str, Any]:
    """What was measured, in figures."""
    jobs = sum(len(ids) for _, _, ids in told)
    first = min(due for due, _, _ in told)
    last = max(due + took_s for due, took_s, _ in told)
    return {
        "database": options.database,
        "jobs": jobs,
        "clients": options.clients,
        "jobs_per_request": options.batch,
        "offered_per_s": options.rate,
        "jobs_per_s": round(jobs / (last - first)),
        **percentiles_ms(took_s for _, took_s, _ in told),
        "daemon_cpu_ms_per_job": round(figures["daemon_cpu_s"] * 1e3 / jobs, 3),
        "daemon_cores": round(figures["daemon_cpu_s"] / (last - first), 2),
        "resident_MB": figures["resident_MB"],
        "given_twice": jobs - len({each for _, _, ids in told for each in ids}),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000, help=f"how many, at most {MOST_JOBS}")
    parser.add_argument("--clients", type=int, default=32, help="connections, in two processes")
    parser.add_argument("--batch", type=int, default=1, help="jobs in one request")
    parser.add_argument("--rate", type=float, help="jobs offered a second [as fast as answered]")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    options = parser.parse_args()
    options.jobs = min(options.jobs, MOST_JOBS)
    print(json.dumps(measure(options), indent=2))


if __name__ == "__main__":
    main()
