"""Forced fail-overs under load: is an acknowledged submission lost, is a job started twice, how long does it take?

    PYTHONPATH=tests python benchmarks/failover.py --failovers 50 [--clients 4] [--json]

Two daemons (`gantree up`) on one real PostgreSQL. Clients hand in jobs with idempotency keys, each of them until it is
acknowledged; every start of a job appends its name to a file. Meanwhile the daemon that leads is killed (kill -9),
stopped for a while (SIGSTOP, and SIGCONT once the other leads), or cut off from the database, in turn. `failover_s` is
from that moment until the other daemon says at /readyz that it leads; `gap_s` until a client is acknowledged again. At
the end every job must have run, once. Exit status 1 if one was lost, or started twice.
"""

import argparse
import json
import math
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gantree.control.engine.leadership import LEASE_S
from gantree.model.errors import GantreeError
from support.fleet import Cable, Fleet
from support.postgres import Server

CLUSTER = """
name: failover
tiers: [node]
machines: {m: {gpus: 16, gpu: H100-80GB, cpus: 256, memory_GiB: 512}}
nodes: [{names: "n[0-3]", machine: m}]
"""
NAMES = ("a", "b")
PAUSE_S = 0.25
"""Of a client, between two submissions."""
STEADY_S = 1.0
"""Of load between two fail-overs."""
ALL_RUN_WITHIN_S = 300.0


@dataclass(slots=True)
class Load:
    """What the clients did."""

    fleet: Fleet
    starts: Path
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    job_of_name: dict[str, str] = field(default_factory=dict)
    acknowledged_s: list[float] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)

    def client(self, number: int) -> None:
        """Hand in one job after the other."""
        client, count = self.fleet.client, 0
        while not self.over.wait(PAUSE_S):
            count += 1
            name = f"c{number}-{count}"
            run = json.dumps(["sh", "-c", f"echo {name} >> {self.starts}"])
            text = f"name: {name}\ngang: [{{role: w, members: 1, each: {{gpus: 1}}, run: {run}}}]\n"
            while True:
                try:
                    taken = client.submit(text, idempotency_key=f"key-{name}")
                    break
                except GantreeError as error:
                    with self.lock:
                        self.refusals[f"{type(error).__name__}: {error}"[:80]] += 1
            with self.lock:
                self.job_of_name[name] = taken["jobs"][0]["job"]
                self.acknowledged_s.append(time.monotonic())

    def gap_s(self, since_s: float) -> float:
        """How long after a moment the next one was acknowledged."""
        while True:
            with self.lock:
                later = [at for at in self.acknowledged_s if at > since_s]
            if later:
                return later[0] - since_s
            time.sleep(0.01)


@contextmanager
def under_load(fleet: Fleet, starts: Path, clients: int) -> Iterator[Load]:
    load = Load(fleet, starts)
    threads = [threading.Thread(target=load.client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.over.set()
        for thread in threads:
            thread.join()


def harm(fleet: Fleet, cables: dict[str, Cable], kind: str, leader: str) -> Callable[[], None]:
    """Do it to the one that leads; what is given back makes it whole again."""
    if kind == "kill":
        fleet.kill(leader)
        return lambda: fleet.start(leader)
    if kind == "stop":
        fleet.signal(leader, signal.SIGSTOP)

        def go_on() -> None:
            fleet.signal(leader, signal.SIGCONT)
            fleet.until_said(leader, "this daemon stands by")

        return go_on
    cables[leader].cut()

    def mend() -> None:
        fleet.until_said(leader, "this daemon stands by")
        cables[leader].mend()

    return mend


def fail_over(fleet: Fleet, cables: dict[str, Cable], load: Load, kind: str) -> tuple[float, float]:
    """One fail-over: seconds until the other leads, and until a client is acknowledged again."""
    leader = fleet.leader()
    other = next(name for name in NAMES if name != leader)
    began_s = time.monotonic()
    heal = harm(fleet, cables, kind, leader)
    while not fleet.leads(other):
        time.sleep(0.01)
    failover_s = time.monotonic() - began_s
    gap_s = load.gap_s(began_s + failover_s) + failover_s
    heal()
    fleet.forget_output(leader)
    return failover_s, gap_s


def judge(fleet: Fleet, load: Load) -> dict[str, object]:
    """What became of all that was acknowledged."""
    deadline = time.monotonic() + ALL_RUN_WITHIN_S
    while True:
        phase_of_job = {row["job"]: row["phase"] for row in fleet.client.jobs()}
        if set(phase_of_job.values()) <= {"succeeded"} or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    starts = Counter(load.starts.read_text().split())
    names = load.job_of_name
    lost = [name for name, job in names.items() if phase_of_job.get(job) != "succeeded"]
    return {
        "acknowledged": len(names),
        "jobs": len(phase_of_job),
        "lost": lost,
        "never_started": [name for name in names if starts[name] == 0],
        "started_twice": [name for name, count in starts.items() if count > 1],
        "taken_twice": len(phase_of_job) - len(names),
        "refusals": dict(load.refusals),
    }


def measure(place: Path, failovers: int, clients: int, kinds: Sequence[str]) -> dict[str, object]:
    """All of it, in an empty directory."""
    server = Server(place / "postgres", durable=True)
    server.start()
    with ExitStack() as opened:
        opened.callback(server.stop)
        url = opened.enter_context(server.database())
        cables = {name: Cable(server.place, place / f"to-{name}") for name in NAMES}
        for cable in cables.values():
            opened.callback(cable.close)
        fleet = Fleet(place / "state", url, CLUSTER, NAMES, LEASE_S)
        for name, cable in cables.items():
            fleet.connect(name, url.replace(str(server.place), str(cable.place)))
        opened.enter_context(fleet)
        rows: list[tuple[str, float, float]] = []
        with under_load(fleet, place / "starts", clients) as load:
            for number in range(failovers):
                time.sleep(STEADY_S)
                kind = kinds[number % len(kinds)]
                failover_s, gap_s = fail_over(fleet, cables, load, kind)
                rows.append((kind, failover_s, gap_s))
                print(f"{number + 1}: {kind} {failover_s:.2f} s, {gap_s:.2f} s", file=sys.stderr)
        return {**judge(fleet, load), **figures(rows)}


def figures(rows: Sequence[tuple[str, float, float]]) -> dict[str, object]:
    told: dict[str, object] = {"failovers": len(rows)}
    for place, name in ((1, "failover_s"), (2, "gap_s")):
        found = sorted(float(row[place]) for row in rows)
        told[name] = {
            "p50": round(found[math.ceil(len(found) / 2) - 1], 2),
            "max": round(found[-1], 2),
            "by_kind": {
                kind: round(max(float(row[place]) for row in rows if row[0] == kind), 2)
                for kind in sorted({row[0] for row in rows})
            },
        }
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failovers", type=int, default=50)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--kinds", default="kill,stop,cut")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-failover-") as place:
        Path(place).chmod(0o755)  # the server may be another user's
        told = measure(Path(place), asked.failovers, asked.clients, asked.kinds.split(","))
    if asked.json:
        print(json.dumps(told))
    else:
        for name, value in told.items():
            print(f"{name}: {value}")
    bad = ("lost", "never_started", "started_twice", "taken_twice")
    return 1 if any(told[name] for name in bad) else 0


if __name__ == "__main__":
    sys.exit(main())
