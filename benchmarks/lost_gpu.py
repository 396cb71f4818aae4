"""From the moment a source shows XID 79 to the gang running elsewhere.

    PYTHONPATH=tests python benchmarks/lost_gpu.py [--times 10] [--xid 79] [--kubernetes]

Local: a real daemon on four virtual nodes of eight GPUs reads a kernel log that hosts forward theirs to (a FIFO); a
gang of two members with eight processes each runs on two of them. A line of XID 79 about the node of its first member
is written, and the time is taken until the last of the sixteen processes of the next attempt notes that it has begun:
its own loading is not counted. In `hung` the processes ignore SIGTERM and answer no checkpoint request, as ranks that
wait in a collective for a GPU that is gone; in `obeys` they end with SIGTERM. After each run the node is used again.

With --xid 119 the gang is asked to save first, as for every fault that loses no GPU: what the save
of a hung gang takes.

With --kubernetes: the API server and kubelets of the tests, a GangJob of three pods with eight GPUs each; from the
condition of a node (NVSentinel's text) until three pods run elsewhere, processes' own start not included.

Prints JSON with the load of the machine: seconds of each run, median and largest.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from gantree.api.client.client import Client
from support.pods import PodStage

PATIENCE_S = 600.0
CLUSTER = """
name: four
tiers: [node]
nodes: [{names: "n[0-3]", machine: dgx-h100}]
"""
PROCESSES = 8
IMPORTS = "import os, signal, sys, time;"
HUNG = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGUSR1, lambda *_: None);"
)
NOTE = "name = '/{GANTREE_ATTEMPT}.{RANK}'.format(**os.environ); open(sys.argv[1] + name, 'w').write(str(time.time()));"
SLEEP = "time.sleep(36000)"
LINE = "Nov 28 03:06:37 {node} kernel: NVRM: Xid (PCI:0000:3b:00): {xid}, pid=7, name=python\n"
CRD = Path(__file__).parents[1] / "deploy/kubernetes/crds/gangjobs.yaml"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
PODS = 3
GANGJOB = f"""
apiVersion: gantree.io/v1alpha1
kind: GangJob
metadata: {{name: g}}
spec:
  gang:
    - role: worker
      members: {PODS}
      each: {{gpus: 8}}
      template: {{spec: {{containers: [{{name: train, image: train:1}}]}}}}
"""
SENTINEL = "ErrorCode:79 GPU:0 XID error occurred Recommended Action=RESTART_VM;"


def local(times: int, xid: int, program: str, folder: Path) -> list[float]:
    """Seconds of each run of a gang whose processes are this program."""
    cluster, log, notes = folder / "cluster.yaml", folder / "kern.log", folder / "notes"
    cluster.write_text(CLUSTER)
    notes.mkdir()
    os.mkfifo(log)
    words = (
        "up",
        "--state",
        str(folder / "state"),
        "--cluster",
        str(cluster),
        "--kernel-log",
        str(log),
    )
    daemon = subprocess.Popen([sys.executable, "-m", "gantree", *words], stdout=subprocess.PIPE)
    try:
        assert daemon.stdout is not None
        assert b" ready: " in daemon.stdout.readline()
        return _runs(Client(folder / "state"), times, xid, program, log, notes)
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_S)


def _runs(
    client: Client, times: int, xid: int, program: str, log: Path, notes: Path
) -> list[float]:
    run = ["python3", "-c", IMPORTS + program + NOTE + SLEEP, str(notes)]
    role = {"role": "w", "members": 2, "processes": PROCESSES, "each": {"gpus": 8}, "run": run}
    job = {"name": "g", "gang": [role], "checkpoint": {"signal": "SIGUSR1", "grace": "60s"}}
    client.submit(json.dumps(job), base_dir="/tmp")
    took = []
    for attempt in range(1, times + 1):
        _until_all_began(notes, attempt, client)
        _until(lambda: client.job("g")["phase"] == "running", client)
        node = client.job("g")["placement"]["members"][0]["node"]
        began_s = time.time()
        with log.open("w") as file:
            file.write(LINE.format(node=node, xid=xid))
        _until_all_began(notes, attempt + 1, client)
        took.append(max(_noted(notes, attempt + 1)) - began_s)
        client.uncordon(node)
    client.cancel("g")
    client.job("g", wait_s=PATIENCE_S, until="ended")
    return took


def _until_all_began(notes: Path, attempt: int, client: Client) -> None:
    _until(lambda: len(_noted(notes, attempt)) == 2 * PROCESSES, client)


def _noted(notes: Path, attempt: int) -> list[float]:
    """When each process of an attempt began, as far as they have said so."""
    return [float(text) for each in notes.glob(f"{attempt}.*") if (text := each.read_text())]


def _until(done: Callable[[], bool], about: Client) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"nothing came of it: {about.jobs()}")
        time.sleep(0.02)


def kubernetes(times: int, folder: Path) -> list[float]:
    """Seconds of each run of a GangJob."""
    with PodStage(folder) as stage:
        stage.nodes("n[0-4]")
        stage.api.define(yaml.safe_load(CRD.read_text()))
        stage.start()
        stage.api.post(URL, yaml.safe_load(GANGJOB))
        return [_run_of_pods(stage) for _ in range(times)]


def _run_of_pods(stage: PodStage) -> float:
    stage.until(lambda: _runs_without(stage, ""))
    lost = stage.pods()["g-worker-0"]["spec"]["nodeName"]
    began_s = time.monotonic()
    _condition(stage, lost, "True")
    stage.until(lambda: _runs_without(stage, lost))
    took_s = time.monotonic() - began_s
    _condition(stage, lost, "False")
    stage.until(lambda: lost not in stage.controller.ledger.site.cordoned)
    return took_s


def _runs_without(stage: PodStage, node: str) -> bool:
    jobs = stage.controller.ledger.jobs.values()
    pods = stage.pods().values()
    run = [each["status"].get("phase") for each in pods] == ["Running"] * PODS
    is_on = any(each["spec"].get("nodeName") == node for each in pods)
    return run and not is_on and any(str(each.phase) == "running" for each in jobs)


def _condition(stage: PodStage, node: str, status: str) -> None:
    told = {"type": "GpuXidError", "status": status, "reason": "NotHealthy", "message": SENTINEL}
    media_type = "application/strategic-merge-patch+json"
    body = {"status": {"conditions": [told]}}
    stage.api.patch(f"/api/v1/nodes/{node}/status", body, media_type)


def summary(took: list[float]) -> dict[str, Any]:
    """What is printed of the runs of one kind."""
    return {
        "median_s": round(median(took), 2),
        "max_s": round(max(took), 2),
        "runs_s": [round(each, 2) for each in took],
    }


def main() -> None:
    """Measure as the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--xid", type=int, default=79)
    parser.add_argument("--kubernetes", action="store_true")
    told = parser.parse_args()
    kinds = {"kubernetes": ""} if told.kubernetes else {"hung": HUNG, "obeys": ""}
    found: dict[str, Any] = {"load": os.getloadavg()[0], "xid": told.xid}
    for kind, program in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            took = (
                kubernetes(told.times, Path(folder))
                if told.kubernetes
                else local(told.times, told.xid, program, Path(folder))
            )
        found[kind] = summary(took)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
