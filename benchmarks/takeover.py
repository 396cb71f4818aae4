"""How soon another daemon leads where the journal is long and many jobs live.

    python benchmarks/takeover.py [--facts 1000000] [--live 20000] [--times 5]

Builds the journal of `restart.py` in a real PostgreSQL, its live jobs waiting and held, the newest snapshot as long
before the end as can be. Two daemons (`gantree up`) share it. The one that leads is killed (kill -9) again and again,
and started again once the other leads. `takeover_s` is from the kill until the other says at /readyz that it leads:
the rest of a lease of 3 s, and reading. Prints JSON, with the load of the machine.
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

from gantree.executors.epochs import EpochFile
from gantree.journal.postgres import PostgresJournal
from gantree.testing.fleet import Fleet
from gantree.testing.postgres import Server
from restart import build

NAMES = ("a", "b")
SETTLED_S = 3.0
"""Between a start and the next kill."""


def take_over(fleet: Fleet) -> float:
    """Kill the one that leads; the seconds until the other does."""
    leader = fleet.leader()
    other = next(name for name in NAMES if name != leader)
    began_s = time.monotonic()
    fleet.kill(leader)
    while not fleet.leads(other):
        time.sleep(0.01)
    took_s = time.monotonic() - began_s
    fleet.start(leader)
    time.sleep(SETTLED_S)
    return took_s


def take_overs(fleet: Fleet, times: int) -> Iterator[float]:
    """One after the other; then both are killed, and the jobs stay as they are."""
    try:
        for name in fleet.names:
            fleet.start(name)
        time.sleep(SETTLED_S)
        for number in range(times):
            took_s = take_over(fleet)
            print(f"{number + 1}: {took_s:.2f} s", file=sys.stderr)
            yield took_s
    finally:
        for name in fleet.names:
            fleet.kill(name)


def measure(place: Path, facts: int, live: int, times: int) -> dict[str, object]:
    """All of it, in an empty directory."""
    server = Server(place / "postgres", durable=True)
    server.start()
    try:
        with server.database() as url:
            built = build(PostgresJournal(url), facts, live, running=0)
            state = place / "state"
            state.mkdir(mode=0o700)
            EpochFile(state).raise_to(1)
            took_s = list(take_overs(Fleet(state, url, None, NAMES), times))
    finally:
        server.stop()
    return {
        "facts": built["facts"],
        "facts_since_snapshot": built["facts_since_snapshot"],
        "jobs": built["jobs"],
        "live": built["live"],
        "takeover_s": [round(each, 2) for each in took_s],
        "median_s": round(median(took_s), 2),
        "worst_s": round(max(took_s), 2),
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
        print(json.dumps(measure(Path(place), asked.facts, asked.live, asked.times), indent=2))


if __name__ == "__main__":
    main()
