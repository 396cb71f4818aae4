"""How exactly an idle gang is warned and reclaimed, in real time; and what watching 10,000 GPUs for it costs.

    PYTHONPATH=src python benchmarks/idle_gangs.py [--warn 10m] [--reclaim 15m]
    PYTHONPATH=src python benchmarks/idle_gangs.py --cost [--gangs 1250]

The first starts a real daemon on two simulated nodes, with an exporter of its own that it reads every 15 seconds as
always. Two gangs run; after five minutes of work the GPUs of one hang at 100 % utilisation. Told are the seconds
between the last sample in which they computed and the warning, and between the deadline and the reclaim, and what the
job's own log has of it. --kill: the daemon is killed in between and starts again at once.

The second hands samples of so many gangs of eight GPUs to the watch, of which a tenth are idle, and tells the CPU of
one round, which comes every 15 seconds.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from gantree.api.client.client import Client
from gantree.control.nodes.idle_watch import IdleWatch
from gantree.model.errors import GantreeError
from gantree.policy.idle import IdleRule
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

JOB = """
name: NAME
queue: x
gang: [{role: w, members: 1, each: {gpus: 8}, run: [sleep, "7200"]}]
"""
WORK_S = 300.0
BUSY = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5, "DCGM_FI_PROF_DRAM_ACTIVE": 0.2}
HUNG = {
    "DCGM_FI_DEV_GPU_UTIL": 100.0,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.0,
}


class Exporter(BaseHTTPRequestHandler):
    """GPUs of two nodes; those of `hung` compute nothing. asked_at is when it was read last, by the state then."""

    hung: str | None = None
    busy_at = 0.0

    def do_GET(self) -> None:
        """The metrics of all nodes."""
        self.send_response(200)
        self.end_headers()
        if self.hung is None:
            type(self).busy_at = time.time()
        for node in ("n0", "n1"):
            for name, value in (HUNG if node == self.hung else BUSY).items():
                for gpu in range(8):
                    line = f'{name}{{gpu="{gpu}",Hostname="{node}"}} {value}\n'
                    self.wfile.write(line.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def started(state: Path, url: str, policy: Path) -> subprocess.Popen[bytes]:
    """A daemon that answers."""
    words = ["up", "--state", str(state), "--virtual", "dgx-h100:2", "--policy", str(policy)]
    process = subprocess.Popen(
        [sys.executable, "-m", "gantree", *words, "--gpu-metrics", url],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            Client(state).health()
        except GantreeError:
            time.sleep(0.2)
        else:
            return process
    raise SystemExit("the daemon did not start")


def fact_of(client: Client, kind: str) -> dict[str, Any]:
    """Wait for a fact about the planted gang."""
    facts = client.facts(follow=True)
    return next(one for one in facts if one["fact"] == kind and one["data"]["job"] == "planted")


def planted(state: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Plant an idle gang and see it end."""
    policy = state / "policy.yaml"
    policy.write_text(f"idle: {{warn: {options.warn}, reclaim: {options.reclaim}, grace: 0s}}\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    daemon, client = started(state, url, policy), Client(state)
    try:
        for name in ("planted", "works"):
            client.submit(JOB.replace("NAME", name))
            client.job(name, wait_s=60, until="running")
        time.sleep(WORK_S)
        Exporter.hung = client.job("planted")["placement"]["members"][0]["node"]
        warned = fact_of(client, "GangIdleWarned")
        if options.kill:
            daemon.kill()
            daemon.wait()
            daemon = started(state, url, policy)
        reclaimed = fact_of(client, "GangReclaimed")
        since, log = reclaimed["data"]["since"], state / "runs/planted/1/log/rank-0.log"
        return {
            "last_busy_sample_to_since_s": round(since - Exporter.busy_at, 2),
            "since_to_warning_s": round(warned["at"] - since, 2),
            "deadline_to_reclaim_s": round(reclaimed["at"] - warned["data"]["reclaim_at"], 2),
            "since_to_reclaim_s": round(reclaimed["at"] - since, 2),
            "works": client.job("works")["phase"],
            "log": log.read_text(),
        }
    finally:
        for name in ("planted", "works"):
            client.cancel(name)
            client.job(name, wait_s=60, until="ended")
        daemon.terminate()
        daemon.wait()


def cost(gangs: int) -> dict[str, Any]:
    """CPU of one round of the watch."""
    lots = random.Random(1)
    stage = Stage(cluster(leaves=gangs // 25, nodes=25), Policy(idle=IdleRule()))
    stage.recovered_every = 10**9
    names = [f"j{number}" for number in range(gangs)]
    stage.submit(*(job(name, 1, 8) for name in names))
    for name in names:
        stage.started(name)
    idle = {stage.nodes(name)[0] for name in lots.sample(names, gangs // 10)}
    ledger = stage.scheduler.ledger
    assert ledger.fabric is not None
    told = {
        node: dict.fromkeys(range(8), HUNG if node in idle else BUSY)
        for node in ledger.fabric.index_of_node
    }
    watch, rounds, judged_s, joined_s, events = IdleWatch(), 40, 0.0, 0.0, 0
    for _ in range(rounds):
        stage.now += 15.0
        before = time.process_time()
        judged = watch.judge(told, ledger.fabric, stage.now)
        between = time.process_time()
        found = watch.events(judged, ledger, stage.now, 1)
        judged_s, joined_s = judged_s + between - before, joined_s + time.process_time() - between
        events += len(found)
        stage.handle(found)
    return {
        "gangs": gangs, "gpus": gangs * 8, "events": events,
        "judged_ms": round(judged_s / rounds * 1e3, 1), "joined_ms": round(joined_s / rounds * 1e3, 1),
        "cores": round((judged_s + joined_s) / rounds / 15.0, 5),
    }  # fmt: skip


def main() -> None:
    """Print what was measured, as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--warn", default="10m")
    parser.add_argument("--reclaim", default="15m")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--gangs", type=int, default=1250)
    options = parser.parse_args()
    if options.cost:
        print(json.dumps(cost(options.gangs)))
        return
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(planted(Path(place), options)))


if __name__ == "__main__":
    main()
