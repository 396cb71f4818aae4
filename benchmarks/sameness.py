"""A digest of everything that is decided: random lives under many policies, and Philly jobs under every preset.

    PYTHONPATH=tests python benchmarks/sameness.py [--philly philly_jobs.csv.gz --topo topo.csv.gz] [--lives 200]
        [--jobs 500] [--workers N] [--against FILE] [--write FILE]

One line a policy and one a preset: the first digits of SHA-256 over the facts, as the journal writes them, and over
the moments at which each decision asked to be called again. Two versions of the program that print the same lines
decide the same. `--against` compares with lines that were written before, names those that differ, and then exits
with 1. Random lives draw from what has been decided, so one different fact changes all that follows it in a line.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path

from gantree.core.scheduler import Decision
from gantree.formats import read_trace
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.journal.encoding.codec import FACT_CODEC
from gantree.model.cluster import Cluster
from gantree.model.events import Event
from gantree.sim.cluster import Overheads
from gantree.sim.lingjun.philly import gpu_s_of_queue, known_gang_of, shared_out, with_queues
from gantree.sim.lingjun.subfabric import GPUS_OF_HOST, first_hosts, read_fabric
from gantree.sim.run import Simulation
from support.random_lives import EVERY_KIND, Lives

STEPS = 50
DIGITS = 16
HOSTS = 24
"""Few enough for 500 jobs to wait for each other."""
CELLS = "cells"


class Digest:
    """SHA-256 over decisions."""

    def __init__(self) -> None:
        self._hash = sha256()
        self.facts = 0

    def add(self, decision: Decision) -> None:
        """The facts of a decision, and when it asks to be called again."""
        for fact in decision.facts:
            encoded = FACT_CODEC.encode(fact)
            self._hash.update(f"{encoded.kind} {encoded.version} {encoded.data}\n".encode())
        self._hash.update(f"{decision.wake_at}\n".encode())
        self.facts += len(decision.facts)

    def line(self, name: str) -> str:
        """For people and for a comparison."""
        return f"{name}: {self.facts} facts, {self._hash.hexdigest()[:DIGITS]}"


class NotedLives(Lives):
    """Random lives whose decisions go into a digest."""

    digest: Digest

    def decided(self, events: list[Event], decision: Decision) -> None:
        self.digest.add(decision)


def of_lives(policy: str, lives: int) -> str:
    """All lives under a policy, one after the other."""
    digest = Digest()

    class Noted(NotedLives):
        pass

    Noted.digest = digest
    for seed in range(lives):
        life = Noted(seed, EVERY_KIND[policy])
        for _ in range(STEPS):
            life.step()
    return digest.line(f"lives, {policy}")


def of_philly(preset: str, trace: Sequence[TraceJob], cluster: Cluster) -> str:
    """The first jobs of the trace under a preset; every queue is guaranteed its share of all GPU-hours."""
    owed = shared_out(len(cluster.nodes) * GPUS_OF_HOST, gpu_s_of_queue(trace))
    policy = with_queues(PRESETS[preset], owed, as_cells=preset == CELLS)
    simulation = Simulation(cluster, trace, policy, Overheads(), known_gang_of)
    digest = Digest()
    handle = simulation.scheduler.handle

    def noted(events: Sequence[Event]) -> Decision:
        decision = handle(events)
        digest.add(decision)
        return decision

    simulation.scheduler.handle = noted  # type: ignore[method-assign]  # the loop shall not know
    while simulation.step():
        pass
    return digest.line(f"philly, {preset}")


def lines(wanted: argparse.Namespace) -> Iterator[str]:
    """Every digest, as it is found."""
    with ProcessPoolExecutor(wanted.workers) as pool:
        yield from pool.map(partial(of_lives, lives=wanted.lives), EVERY_KIND)
        if wanted.philly is not None and wanted.topo is not None:
            trace = read_trace(wanted.philly)[: wanted.jobs]
            cluster = first_hosts(read_fabric(wanted.topo), HOSTS)
            yield from pool.map(partial(of_philly, trace=trace, cluster=cluster), PRESETS)


def differences(found: Sequence[str], before: Sequence[str]) -> list[str]:
    """Lines of today that differ from those of before; lines that stand only before are not looked at."""
    was = dict(line.split(": ", 1) for line in before if ": " in line)
    now = dict(line.split(": ", 1) for line in found)
    return [
        f"{name}: {told}, before {was.get(name, 'nothing')}"
        for name, told in now.items()
        if was.get(name) != told
    ]


def main() -> int:
    """Print a line each; 1 if one differs from before."""
    wanted = arguments()
    found = []
    for line in lines(wanted):
        print(line, flush=True)
        found.append(line)
    if wanted.write is not None:
        wanted.write.write_text("\n".join(found) + "\n", encoding="utf-8")
    if wanted.against is None:
        return 0
    differ = differences(found, wanted.against.read_text(encoding="utf-8").splitlines())
    print("\n".join(["", "Differs:", *differ] if differ else ["", "All the same."]))
    return 1 if differ else 0


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--philly", type=Path, help="philly_jobs.csv.gz")
    parser.add_argument("--topo", type=Path, help="topo.csv.gz of Lingjun")
    parser.add_argument("--lives", type=int, default=200, help="lives a policy")
    parser.add_argument("--jobs", type=int, default=500, help="jobs of Philly")
    parser.add_argument("--workers", type=int, help="processes; as many as cores, if omitted")
    parser.add_argument("--against", type=Path, help="lines written before, to compare with")
    parser.add_argument("--write", type=Path, help="where to write the lines")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
