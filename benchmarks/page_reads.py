"""How long pages of use take on a large site with a year of history: the fleet, the history, queues, usage, waste.

A site in this process (`support.pretended`) with 10,000 GPUs and about 1,000 gangs that run, on a journal with a year
of roll-ups (`year_of_use.py`). Meanwhile somebody submits a job every second. Every page is read in turn; told are the
median and the maximum, and the processor time of this process in a read, which says the same on a busy machine. It has
the decisions that were made meanwhile in it, and what the client takes.

    PYTHONPATH=src:tests python benchmarks/page_reads.py [--reads 20] [--keys 600] [--state DIRECTORY]

--state keeps the journal for the next run; --only TEXT: pages whose path has it. --cprofile PATH: the profile of one
page instead, on the thread that decides.
"""

import argparse
import cProfile
import json
import os
import pstats
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from urllib.request import Request, urlopen

from gantree.model.jobs import Job
from gantree.testing.builders import cluster, job
from support.pretended import TOKEN, PretendedSite
from year_of_use import KEYS_AT_ONCE, PROJECTS, QUEUES, USERS, write

SHAPE = (5, 10, 25)
"""1,250 nodes of 8 GPUs."""
GANGS = 1000
SIZES = ((1, 4), (1, 8), (2, 8), (1, 8))
PERIODS = ("3h", "24h", "7d", "30d", "1y")
DIMENSIONS = ("queue", "user", "model", "project", "device", "job")
STEPS = {"minute": 3, "hour": 48, "day": 365 * 24}
"""Hours of which a history is read in such steps."""


def jobs(count: int) -> Iterator[Job]:
    """Jobs of all queues, users and projects."""
    chance = Random(1)
    for number in range(count):
        queue = chance.randrange(QUEUES)
        made = job(f"train-{number}", *chance.choice(SIZES))
        project = f"project-{chance.randrange(PROJECTS)}"
        user = f"user{queue}-{chance.randrange(USERS)}"
        yield replace(made, queue=f"team-{queue}", user=user, project=project)


def pages(now: float) -> list[str]:
    """What is read."""
    found = [f"/{page}?period={period}" for page in ("fleet", "history") for period in PERIODS]
    found += ["/", "/queues", "/v1/queues", "/v1/waste?limit=20", "/v1/waste?by=queue"]
    found += [
        f"/v1/history/usage?by={by}&step={step}&since={now - 3600 * hours:.0f}"
        for by in ("all", "queue", "model")
        for step, hours in STEPS.items()
    ]
    found += [f"/v1/usage?by={by}&limit=100" for by in DIMENSIONS]
    month = now - 30 * 86_400
    return found + [f"/v1/usage?by={by}&limit=100&since={month:.0f}" for by in DIMENSIONS[:-1]]


def read(site: PretendedSite, path: str) -> int:
    """Read a page to its end; how many bytes it has."""
    asked = Request(site.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(asked) as answer:
        return len(answer.read())


def figures(site: PretendedSite, path: str, reads: int) -> dict[str, float]:
    """Milliseconds of reads, after one that is not counted."""
    size, took, cpu = read(site, path), [], []
    for _ in range(reads):
        before, cpu_before = time.monotonic(), time.process_time()
        read(site, path)
        took.append(1000 * (time.monotonic() - before))
        cpu.append(1000 * (time.process_time() - cpu_before))
    return {
        "median_ms": round(statistics.median(took)),
        "most_ms": round(max(took)),
        "cpu_ms": round(statistics.median(cpu)),
        "KB": round(size / 1000),
    }


class Submitting:
    """Somebody who submits a job every second, within a block."""

    def __init__(self, site: PretendedSite) -> None:
        self._site, self._over = site, threading.Event()
        self._thread = threading.Thread(target=self._submit)

    def _submit(self) -> None:
        number = 0
        while not self._over.wait(1.0):
            self._site.submit(replace(job(f"new-{number}", 1, 8), queue="team-0", user="user0-0"))
            number += 1

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def profiled(site: PretendedSite, path: str) -> None:
    """Print where the thread that decides spends a read."""
    profile = cProfile.Profile()
    site.ask(lambda controller: profile.enable())
    read(site, path)
    site.ask(lambda controller: profile.disable())
    pstats.Stats(profile).sort_stats("cumulative").print_stats(40)


def measure(given: argparse.Namespace, state: Path) -> None:
    """Print one line a page."""
    rows = 0 if given.state and state.exists() else write(state, time.time(), given.keys)
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as place:
        for file in state.glob("journal.sqlite3*"):
            shutil.copy(file, place)
        with PretendedSite(Path(place), cluster(*SHAPE, 8, 8)) as site:
            site.submit(*jobs(GANGS))
            running = site.ask(lambda controller: len(controller.ledger.holding))
            print(json.dumps({"rows": rows, "running": running, "load": os.getloadavg()}))
            if given.cprofile:
                profiled(site, given.cprofile)
                return
            with Submitting(site):
                for path in pages(time.time()):
                    if given.only in path:
                        told = figures(site, path, given.reads)
                        print(json.dumps({"page": path, **told}), flush=True)


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--reads", type=int, default=20)
    options.add_argument("--keys", type=int, default=KEYS_AT_ONCE)
    options.add_argument("--only", default="")
    options.add_argument("--state", type=Path)
    options.add_argument("--cprofile", metavar="PATH")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as place:
        measure(given, given.state or Path(place))


if __name__ == "__main__":
    main()
