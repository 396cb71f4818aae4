"""How soon a daemon decides again: from the start of its process to the first decision, with a long journal.

    PYTHONPATH=tests python benchmarks/restart.py --facts 1000000 --live 20000 [--keep DIRECTORY] [--json]

Builds a real SQLite journal of at least that many facts (jobs of one to eight GPUs on 16,384; most have ended, of the
live ones half run and half wait), with the snapshots that a daemon would have taken, the last one as long before the
end as can be. Then a process of its own starts on it, three times: it takes the journal, the newest snapshot, the facts
since, says the orders that are in force, takes in a job and decides about it. The cluster is one that writes down what
it is told and says that what should run runs. `restart_s` is from before the process to after that decision; `_cpu_s`
is the time that the process had a core.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

from gantree.control.engine.controller import Controller
from gantree.control.snapshots import EVERY_FACTS, Snapshots
from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.executors.inventory import Inventory
from gantree.journal.contract import Journal
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.events import Event
from gantree.model.facts import (
    AttemptEnded,
    CheckpointRecorded,
    FabricDefined,
    Fact,
    GangPlaced,
    GangRunning,
    JobAccepted,
    JobEnded,
)
from gantree.model.jobs import Checkpoint, Job, Role, Shape
from gantree.model.phases import HOLDING, Phase
from gantree.model.placements import Domain, MemberPlacement, Placement, Predicted
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster

NODES, GPUS_OF_NODE = 2048, 8
TURN = 250
LEASE_S = 3600.0
SIZES = (1, 2, 4, 8, 8)
POLICY = Policy(half_life_s=86_400.0)


def site() -> Cluster:
    return cluster(spines=8, leaves=16, nodes=16, gpus=GPUS_OF_NODE)


def spec(number: int) -> Job:
    """A job as users hand them in: with a command, an environment, a checkpoint, a limit."""
    shape = Shape(gpus=SIZES[number % len(SIZES)], cpus=8.0, memory_GiB=64.0)
    env = (("SEED", str(number)), ("MASTER_PORT", "29500"))
    run = ("python", "train.py", "--config", f"configs/{number % 97}.yaml")
    role = Role("worker", 1, shape, shape.gpus, run=run, env=env, workdir="/data/team")
    return Job(
        f"train-{number}",
        (role,),
        queue=f"team-{number % 20}",
        user=f"user-{number % 200}",
        checkpoint=Checkpoint(every_s=900.0, path=f"/data/ckpt/{number}"),
        time_limit_s=86_400.0,
    )


def lives(live: int, running: int) -> Iterator[list[Fact]]:
    """Decisions without end: the cluster, the jobs that live, then waves of jobs beside them that run and end.

    Where none of those that live runs, they are held, and nothing runs at any end of a turn: no daemon starts any.
    """
    at = time.time() - 86_400.0 / 2
    yield [FabricDefined(at=at, cluster=site())]
    for number in range(running):
        yield begun(at, number, spec(len(SIZES) * number), number)
    held = running == 0
    yield [
        accepted(at, number, replace(spec(number), held=held)) for number in range(running, live)
    ]
    first_free = -(-running // GPUS_OF_NODE)
    for number in count(live, NODES - first_free):
        at += 60.0
        wave = range(number, number + NODES - first_free)
        for each in wave:
            one = begun(at, each, spec(each), GPUS_OF_NODE * (first_free + each - number))
            yield one + ended(at, each) if held else one
        if held:
            continue
        for each in wave:
            yield ended(at + 30.0, each)


def begun(at: float, number: int, told: Job, first_gpu: int) -> list[Fact]:
    node, first = divmod(first_gpu, GPUS_OF_NODE)
    gpus = tuple(range(first, first + told.gpus))
    member = MemberPlacement("worker", 0, f"n{node}", gpus, cpus=8.0, memory_GiB=64.0)
    placement = Placement((member,), Domain("node", f"n{node}"), Predicted(0.002, (("leaf", 0),)))
    job_id = name(number)
    return [
        accepted(at, number, told),
        GangPlaced(at=at, job=job_id, attempt=1, placement=placement),
        GangRunning(at=at, job=job_id, attempt=1),
    ]


def ended(at: float, number: int) -> list[Fact]:
    job_id = name(number)
    return [
        CheckpointRecorded(at=at, job=job_id, attempt=1, step=number),
        AttemptEnded(at=at, job=job_id, attempt=1, exit_code=0),
        JobEnded(
            at=at, job=job_id, outcome=Phase.SUCCEEDED, exit_code=0, reason="all ranks ended with 0"
        ),
    ]


def accepted(at: float, number: int, told: Job) -> Fact:
    return JobAccepted(at=at, job=name(number), spec=told, priority=200, seq=number)


def name(number: int) -> str:
    return f"train-{number}"


def build(journal: Journal, facts: int, live: int, running: int) -> dict[str, float]:
    """The journal, turn by turn, with the snapshots of a daemon that runs all the while. It is closed then."""
    epoch = journal.lead("benchmark", LEASE_S)
    assert epoch is not None
    snapshots, worst_s, taken_at = Snapshots(journal, epoch), 0.0, 0
    ledger, source, turn = Scheduler(POLICY).ledger, lives(live, running), list[Fact]()
    while ledger.applied < facts or ledger.applied - taken_at < EVERY_FACTS - 2 * TURN:
        turn = next(source)
        while len(turn) < TURN:
            turn += next(source)
        journal.commit_turn(0, turn, (), epoch)
        for fact in turn:
            ledger.apply(fact)
        due = ledger.applied - taken_at >= EVERY_FACTS
        if due or snapshots.is_ready:
            scheduler = Scheduler.of(ledger, turn[-1].at)
            began = time.perf_counter()
            snapshots.follow(scheduler)
            worst_s = max(worst_s, time.perf_counter() - began)
            taken_at = ledger.applied if due else taken_at
    figures = measured(Scheduler.of(ledger, turn[-1].at))
    snapshots.wait()
    journal.resign(epoch)
    journal.close()
    return {
        "facts": float(ledger.applied),
        "facts_since_snapshot": float(ledger.applied - taken_at),
        "longest_pause_s": worst_s,
        **figures,
    }


def measured(scheduler: Scheduler) -> dict[str, float]:
    """What one snapshot takes, with nothing known of what has ended, and again with all of that known."""
    codec, found = SnapshotCodec(), {}
    for kind in ("first", "next"):
        began = time.perf_counter()
        snapshot = snapshot_of(scheduler, codec.ended_known)
        copied = time.perf_counter()
        text = codec.encode(snapshot)
        found[f"{kind}_copied_s"], found[f"{kind}_encoded_s"] = (
            copied - began,
            time.perf_counter() - copied,
        )
    return {
        **found,
        "text_MB": len(text) / 1e6,
        "live": float(len(snapshot.live["job"])),
        "jobs": float(len(scheduler.ledger.jobs)),
    }


class Running(RecordingCluster):
    """All that should run does."""

    controller: Controller | None = None

    def inventory(self) -> Inventory:
        assert self.controller is not None
        holding = self.controller.ledger.holding.values()
        return Inventory({(state.job, state.attempt): "running" for state in holding})


def start(state_dir: Path, began: float) -> None:
    """What the process of its own does; began is when it was started, by the clock of the whole machine."""
    marks: dict[str, float] = {}

    def mark(what: str) -> None:
        marks[f"{what}_s"], marks[f"{what}_cpu_s"] = time.time() - began, time.process_time()

    mark("imported")
    journal = SqliteJournal(state_dir)
    clusters: list[Running] = []

    def make(known: Cluster, emit: Callable[[Event], None], clock: Callable[[], float]) -> Running:
        clusters.append(Running(known, emit, clock))
        return clusters[0]

    controller = Controller(journal, POLICY, make)
    clusters[0].controller = controller
    mark("folded")
    controller.recover()
    mark("recovered")
    controller.submit([job("first")], "/tmp", {}, "user-1")
    while controller.ledger.jobs.get("first") is None:
        controller.step()
    assert controller.ledger.jobs["first"].phase in (*HOLDING, Phase.PENDING)
    mark("restart")
    print(json.dumps(marks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--live", type=int, default=20_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.start:
        start(asked.start, asked.began)
        return
    with ExitStack() as stack:
        state_dir = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal = SqliteJournal(state_dir)
        figures = build(journal, asked.facts, asked.live, running=asked.live // 2)
        for _ in range(3):
            command = [
                sys.executable,
                __file__,
                "--start",
                str(state_dir),
                "--began",
                repr(time.time()),
            ]
            ran = subprocess.run(command, check=True, capture_output=True, text=True)
            figures.update(json.loads(ran.stdout.splitlines()[-1]))
            print(ran.stdout.strip(), file=sys.stderr)
    if asked.json:
        print(json.dumps(figures))
    else:
        for figure, value in figures.items():
            print(f"{figure:20} {value:g}")


if __name__ == "__main__":
    main()
