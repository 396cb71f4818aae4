"""Short jobs with real processes on a daemon of this machine, drawn from a seed: what a simulation is compared with.

The cluster is described, not there: six nodes of four GPUs under two leaves, all of them this machine. Jobs sleep. Some
of them save their progress on a signal and go on from there, so that preemption costs them little.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf
from pathlib import Path

import yaml

from gantree.api.client.client import Client
from gantree.formats import TraceJob, read_cluster, read_job, read_policy
from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.policy.rules import Policy
from gantree.sim.overheads import Overheads
from gantree.sim.run import simulate

SITE = """
name: six-nodes
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 256}}
nodes:
  - {names: "n[0-2]", machine: m4, at: {leaf: l0}}
  - {names: "n[3-5]", machine: m4, at: {leaf: l1}}
"""
POLICY = """
preset: gantree
priorities: {research: 100, batch: 200, production: 300}
queues:
  - {name: a, cohort: all, guarantee: {gpus: {any: 12}}}
  - {name: b, cohort: all, guarantee: {gpus: {any: 12}}}
evictions: {min_run: 0s, grace: 5s, per_job_per_day: 4}
"""
SAVES = """
step=$(cat $GANTREE_CHECKPOINT_PATH/step 2>/dev/null || echo 0)
trap 'echo $step > $GANTREE_CHECKPOINT_PATH/step; echo $step > $GANTREE_CHECKPOINT_ANSWER' USR1
while [ $step -lt {steps} ]; do sleep 0.2; step=$((step + 1)); done
"""
STEP_S = 0.2
SIZES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 4), (2, 4), (2, 4))
"""(members, GPUs of each); a size is drawn evenly from these."""
SHARE_THAT_SAVES = 0.3
SHARE_OF_PRODUCTION = 0.08
PATIENCE_S = 900.0
EVERY_S, LONGEST_S, APART_S, TRIES = 1.0, 5.0, 0.3, 30
USUAL = Overheads(start_s=0.25, stop_s=0.2, end_s=0.1)


@dataclass(frozen=True, slots=True)
class ShortJob:
    """A job file, and how many seconds after the first one it is submitted."""

    at_s: float
    text: str


def short_jobs(
    count: int, seed: int, every_s: float, longest_s: float, saves: Path
) -> list[ShortJob]:
    """So many jobs, on average every_s apart, of 1 s to longest_s each; saves is a directory for checkpoints."""
    draw = random.Random(seed)
    jobs, at_s = [], 0.0
    for number in range(count):
        jobs.append(ShortJob(at_s, _job_file(number, draw, longest_s, saves)))
        at_s += draw.uniform(0.5, 1.5) * every_s
    return jobs


def _job_file(number: int, draw: random.Random, longest_s: float, saves: Path) -> str:
    members, gpus = draw.choice(SIZES)
    seconds = round(draw.uniform(1.0, longest_s), 1)
    job: dict[str, object] = {
        "name": f"short-{number}",
        "queue": draw.choice(("a", "a", "b")),
        "priority": "production" if draw.random() < SHARE_OF_PRODUCTION else "batch",
        "expected": f"{seconds:g}s",
    }
    run = ["sleep", f"{seconds:g}"]
    if members == 1 and draw.random() < SHARE_THAT_SAVES:
        folder = saves / f"short-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        job["checkpoint"] = {"signal": "SIGUSR1", "grace": "10s", "path": str(folder)}
        run = ["sh", "-c", SAVES.replace("{steps}", str(round(seconds / STEP_S)))]
    job["gang"] = [{"role": "worker", "members": members, "each": {"gpus": gpus}, "run": run}]
    return yaml.safe_dump(job)


def spaced_jobs(count: int, seed: int, saves: Path) -> list[ShortJob]:
    """So many jobs, one every EVERY_S, of which no two events should come close.

    Seconds of each are drawn until, in a simulation with overheads as this machine has them, submissions and ends lie
    apart by APART_S; where no draw will do, the job is left out.
    """
    draw, jobs = random.Random(seed), list[ShortJob]()
    for number in range(count):
        for _ in range(TRIES):
            job = ShortJob(EVERY_S * number, _job_file(number, draw, LONGEST_S, saves))
            if _least_apart_s([*jobs, job]) >= APART_S:
                jobs.append(job)
                break
    return jobs


def _least_apart_s(jobs: Sequence[ShortJob]) -> float:
    """How close two submissions or ends come in a simulation."""
    specs = {spec.name: spec for spec in (_spec_of(job.text) for job in jobs)}
    rows = [_row(_spec_of(job.text), job.at_s) for job in jobs]
    result = simulate(_site(), rows, _policy(), overheads=USUAL, jobs=lambda row: specs[row.job_id])
    ends = [row.end_s for row in result.jobs if row.end_s is not None]
    stops = [stop.at_s for row in result.jobs for stop in row.stops]
    moments = sorted([*ends, *stops, *(job.at_s for job in jobs)])
    return min((after - before for before, after in pairwise(moments)), default=inf)


def _row(spec: Job, at_s: float) -> TraceJob:
    saves_every_s = 1e9 if spec.checkpoint else None
    gpus = spec.roles[0].shape.gpus
    return TraceJob(
        spec.name, at_s, spec.expected_s or 0.0, spec.members, gpus, checkpoint_s=saves_every_s
    )


@cache
def _spec_of(text: str) -> Job:
    (spec,) = read_job(text, "job.yaml")
    return spec


@cache
def _site() -> Cluster:
    return read_cluster(SITE, "site.yaml")


@cache
def _policy() -> Policy:
    return read_policy(POLICY, "policy.yaml")


def submit_all(
    client: Client, jobs: Sequence[ShortJob], said: Callable[[str], None] = print
) -> None:
    """Submit each job at its moment."""
    began = time.monotonic()
    for number, job in enumerate(jobs, 1):
        time.sleep(max(0.0, began + job.at_s - time.monotonic()))
        client.submit(job.text)
        if number % 50 == 0:
            said(f"{number} of {len(jobs)} jobs submitted")


def wait_for_all(client: Client, jobs: int) -> None:
    """Wait until so many jobs have succeeded. Raises AssertionError where one fails, or none ends for long."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        phases = [row["phase"] for row in client.jobs()]
        assert not {"failed", "cancelled", "timed-out"} & set(phases), phases
        if phases.count("succeeded") == jobs:
            return
        assert time.monotonic() < deadline, f"after {PATIENCE_S:g} s: {phases}"
        time.sleep(0.2)
