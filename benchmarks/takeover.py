"""How soon another daemon leads where the journal is long and many jobs live.

    PYTHONPATH=tests python benchmarks/takeover.py [--facts 1000000] [--live 20000] [--times 5]

Builds the journal of `restart.py` in a real PostgreSQL, its live jobs waiting and held, the newest snapshot as long
before the end as can be. Two daemons (`gantree up`) share it. The one that leads is killed (kill -9) again and again,
and started again once the other leads. `takeover_s` is from the kill until the other says at /readyz that it leads:
the rest of a lease of 3 s, and what the other has to do. `cpu_s` is the processor time that the other took meanwhile,
`warm_up_cpu_s` that of a standby from its start to the next kill, `resident_MB` its memory by then, without that of its
reader. Prints JSON, with the load of the machine.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from gantree.control.engine.leadership import LEASE_S
from gantree.executors.local.epochs import EpochFile
from gantree.journal.postgres import PostgresJournal
from loading import resident_MB, spent_s
from restart import build
from support.fleet import Fleet
from support.postgres import Server

NAMES = ("a", "b")
SETTLED_S = 3.0
"""Between the moment at which a standby has read what there is, and the kill."""


class TakeOver(NamedTuple):
    """What one take-over took, and what whoever took over had taken while it stood by."""

    took_s: float
    cpu_s: float
    warm_up_cpu_s: float
    resident_MB: float


def take_over(fleet: Fleet) -> TakeOver:
    """Kill the one that leads; what the other takes until it does."""
    leader = fleet.leader()
    other = next(name for name in NAMES if name != leader)
    fleet.until_warm(other)
    time.sleep(SETTLED_S)
    standby = fleet.pid(other)
    warm_up_cpu_s, memory_MB = spent_s(standby), resident_MB(standby)
    began_s = time.monotonic()
    fleet.kill(leader)
    while not fleet.leads(other):
        time.sleep(0.01)
    took_s = time.monotonic() - began_s
    cpu_s = spent_s(standby) - warm_up_cpu_s
    fleet.start(leader)
    return TakeOver(took_s, cpu_s, warm_up_cpu_s, memory_MB)


def take_overs(fleet: Fleet, times: int) -> Iterator[TakeOver]:
    """One after the other; then both are killed, and the jobs stay as they are."""
    try:
        for name in fleet.names:
            fleet.start(name)
        for number in range(times):
            took = take_over(fleet)
            print(f"{number + 1}: {took}", file=sys.stderr)
            yield took
    finally:
        for name in fleet.names:
            fleet.kill(name)


def measure(place: Path, asked: argparse.Namespace) -> dict[str, object]:
    """All of it, in an empty directory."""
    server = Server(place / "postgres", durable=True)
    server.start()
    try:
        with server.database() as url:
            built = build(PostgresJournal(url), asked.facts, asked.live, running=0)
            state = place / "state"
            state.mkdir(mode=0o700)
            EpochFile(state).raise_to(1)
            fleet = Fleet(state, url, None, NAMES, LEASE_S)
            took = list(take_overs(fleet, asked.times))
    finally:
        server.stop()
    took_s = [each.took_s for each in took]
    return {
        **{name: built[name] for name in ("facts", "facts_since_snapshot", "jobs", "live")},
        "takeover_s": [round(each, 2) for each in took_s],
        "median_s": round(median(took_s), 2),
        "worst_s": round(max(took_s), 2),
        "cpu_s": [round(each.cpu_s, 2) for each in took],
        "warm_up_cpu_s": [round(each.warm_up_cpu_s, 2) for each in took],
        "resident_MB": [round(each.resident_MB) for each in took],
        "load_average": os.getloadavg(),
    }


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--live", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-takeover-") as place:
        Path(place).chmod(0o755)  # the server may be another user's
        print(json.dumps(measure(Path(place), asked), indent=2))


if __name__ == "__main__":
    main()
