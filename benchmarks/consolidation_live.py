"""Consolidation acted out with real processes: a service by day, training in what it leaves idle, in compressed days.

    PYTHONPATH=tests python benchmarks/consolidation_live.py [--days 10] [--day 120] [--json FILE]

One daemon has a virtual node of 8 GPUs. A service of 2 to 7 replicas, one of them to spare, takes a fixed time for
each request by sleeping. Requests come through `gantree route` at a rate that is a cosine, at night 40 % of that at
noon, and the autoscaler follows it. On days with training eight jobs of one GPU take what is free, and give it back by
checkpoint. Each day is lived twice, with and without them, in turn and with the same requests at the same moments;
which of the two comes first alternates. Daemon, router, replicas and load share the first core, training has the
second.

Printed are, with 95 % intervals by Student's t over the pairs: by how much serving's p99 differs, how many requests
miss their target (twice the time of a request), and which share of what serving left idle training ran in.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gantree import Client
from serving.arrivals import Answer, arrivals, percentile, send_all
from serving.gpu_time import attempts
from serving.interval import interval_95
from serving.scene import CLUSTER, POLICY, Scene, scene, until

Json = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
GPUS, TRAINERS = 8, 8
SERVICE = "chat"
REQUEST_S = 0.5
TARGET_S = 2 * REQUEST_S
SLOTS = 4
TARGET_CONCURRENCY = 2.8
MOST_REPLICAS, LEAST_REPLICAS = 7, 2
PEAK_PER_S = 33.0
SETTLED_S = 3.0
HERE, OTHER = ("taskset", "-c", "0"), ("taskset", "-c", "1")


@dataclass(frozen=True, slots=True)
class Day:
    """One day as it was. Latencies of all requests, in seconds; failed: without status 200, failures: the first."""

    number: int
    training: bool
    requests: int
    failed: int
    missed: int
    p50_s: float
    p99_s: float
    served_gpu_s: float
    trained_gpu_s: float
    idle_gpu_s: float
    preempted: int
    most_replicas: int
    failures: tuple[str, ...]

    @property
    def soaked(self) -> float:
        """The share of what serving left idle in which training ran."""
        return self.trained_gpu_s / self.idle_gpu_s


def service_file() -> str:
    """The service."""
    run = [sys.executable, str(EXAMPLES / "services" / "server.py"), "--model", "tiny",
           "--seconds", str(REQUEST_S), "--concurrency", str(SLOTS)]  # fmt: skip
    return f"""
kind: service
name: {SERVICE}
queue: serving
gang: [{{role: server, members: 1, each: {{gpus: 1}}, run: {json.dumps(run)}}}]
replicas: {{min: {LEAST_REPLICAS}, max: {MOST_REPLICAS}, spare: 1}}
ready: {{http: /health, every: 250ms, timeout: 1s}}
drain: 20s
scale:
  on: [{{metric: concurrency, target: {TARGET_CONCURRENCY}}}]
  every: 1s
  down: {{stabilise: 6s}}
route: {{models: [tiny], concurrency: {SLOTS}, queue: 500, wait: 30s}}
"""


def trainer_file(name: str, place: Path) -> str:
    """A job that trains until it is cancelled, in steps of 20 ms."""
    run = [*OTHER, sys.executable, str(EXAMPLES / "train" / "train.py"), "--steps", "10000000",
           "--step-s", "0.02", "--checkpoint-every", "250"]  # fmt: skip
    return f"""
name: {name}
queue: training
priority: batch
gang: [{{role: worker, members: 1, each: {{gpus: 1}}, run: {json.dumps(run)}}}]
checkpoint: {{grace: 10s, path: {place / "checkpoints" / name}}}
"""


def settle(live: Scene, training: bool) -> None:
    """Wait for the night: few replicas, all ready, and on days with training all other GPUs in use."""

    def is_night() -> bool:
        row = live.client.service(SERVICE)
        at_work = sum(
            job["phase"] == "running" for job in live.client.jobs() if job["queue"] == "training"
        )
        calm = row["ready"] == row["wanted"] and row["draining"] == 0 and row["ready"] <= 3
        return calm and (not training or at_work >= GPUS - row["ready"])

    until(is_night, "a night begins")
    time.sleep(SETTLED_S)


def lived(live: Scene, number: int, training: bool, day_s: float) -> Day:
    """One day."""
    names = [f"day{number}-{each}" for each in range(TRAINERS)] if training else []
    for name in names:
        live.client.submit(trainer_file(name, live.state), base_dir=str(EXAMPLES))
    settle(live, training)
    moments = arrivals(day_s, PEAK_PER_S, number)
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 1}
    began = time.time()
    answers = asyncio.run(send_all(f"{live.url}/v1/completions", body, moments))
    ended = began + day_s
    day = measured(live.client, number, training, answers, began, ended)
    for name in names:
        live.client.cancel(name)
    until(lambda: all(live.client.job(name)["ended_at"] for name in names), "training has ended")
    return day


def measured(
    client: Client, number: int, training: bool, answers: list[Answer], began: float, ended: float
) -> Day:
    """The figures of a day."""
    took = [each.took_s for each in answers]
    facts = list(client.facts())
    made = list(attempts(facts))
    serving = [each for each in made if each.job.startswith(f"{SERVICE}.")]
    trained = [each for each in made if not each.job.startswith(f"{SERVICE}.")]
    served_s = sum(each.held_s(began, ended) for each in serving)
    wanted = [
        fact["data"]["replicas"]
        for fact in facts
        if fact["fact"] == "ServiceScaled" and began <= fact["at"] <= ended
    ]
    return Day(
        number=number,
        training=training,
        requests=len(answers),
        failed=sum(each.status != 200 for each in answers),
        missed=sum(each.took_s > TARGET_S or each.status != 200 for each in answers),
        p50_s=percentile(took, 0.5),
        p99_s=percentile(took, 0.99),
        served_gpu_s=served_s,
        trained_gpu_s=sum(each.worked_s(began, ended) for each in trained),
        idle_gpu_s=GPUS * (ended - began) - served_s,
        preempted=sum(
            fact["fact"] == "GangPreempted" and began <= fact["at"] <= ended for fact in facts
        ),
        most_replicas=max(wanted, default=0),
        failures=tuple(f"{each.due_s:.1f} s: {each.why}" for each in answers if each.why)[:20],
    )


def compared(days: list[Day]) -> Json:
    """What the pairs say together."""
    pairs = [
        (one, other)
        for one in days
        for other in days
        if one.training and not other.training and one.number == other.number
    ]
    p99 = [100 * (one.p99_s / other.p99_s - 1) for one, other in pairs]
    missed = [
        100 * (one.missed / one.requests - other.missed / other.requests) for one, other in pairs
    ]
    soaked = [100 * one.soaked for one, _ in pairs]
    figures = {"p99_percent": p99, "missed_points": missed, "soaked_percent": soaked}
    rows = {
        name: dict(zip(("low", "mean", "high"), interval_95(values), strict=True))
        for name, values in figures.items()
    }
    sums = {
        f"{field}_{word}": sum(getattr(day, field) for day in days if day.training is training)
        for field in ("requests", "missed", "failed")
        for word, training in (("with", True), ("without", False))
    }
    return {"pairs": len(pairs), **rows, **sums}


def shown(day: Day) -> str:
    """A day in a line."""
    words = "with training   " if day.training else "without training"
    soaked = f", training in {100 * day.soaked:.0f} % of the idle time, {day.preempted} preempted"
    return (
        f"day {day.number} {words}: {day.requests} requests, p50 {1e3 * day.p50_s:.0f} ms, "
        f"p99 {1e3 * day.p99_s:.0f} ms, {day.missed} missed, {day.failed} failed, up to {day.most_replicas} replicas"
        f"{soaked if day.training else ''}"
    )


def main() -> None:
    """All days."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    options.add_argument("--days", type=int, default=10, help="each is lived twice")
    options.add_argument("--day", type=float, default=120.0, metavar="SECONDS")
    options.add_argument("--json", type=Path, metavar="FILE")
    given = options.parse_args()
    os.sched_setaffinity(0, {0})
    days: list[Day] = []
    with (
        tempfile.TemporaryDirectory() as place,
        scene(Path(place), CLUSTER, POLICY, run_by=HERE) as live,
    ):
        live.client.submit(service_file(), base_dir=str(EXAMPLES))
        until(lambda: live.client.service(SERVICE)["ready"] >= LEAST_REPLICAS, "it is ready")
        for number in range(given.days):
            for training in (True, False) if number % 2 == 0 else (False, True):
                days.append(lived(live, number, training, given.day))
                print(shown(days[-1]), flush=True)
    found = {"day_s": given.day, **compared(days), "load": os.getloadavg()[1]}
    print(json.dumps(found, indent=1))
    if given.json:
        rows = [asdict(day) for day in days]
        given.json.write_text(json.dumps({**found, "days": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
