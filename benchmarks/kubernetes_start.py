"""How long a scheduler takes from the start of its process until the first and the last of the waiting pods is bound.

    PYTHONPATH=tests:benchmarks KUBEBUILDER_ASSETS=DIRECTORY python benchmarks/kubernetes_start.py
        [--nodes 500] [--pods 1000] [--rounds 3] [--schedulers gantree kube-scheduler]

The nodes and pods are there before; each round has an API server of its own. Seconds, medians over the rounds, as JSON.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median

from scheduler_perf.lists import Workload
from scheduler_perf.pods import Pods
from scheduler_perf.processes import kubeconfig, launched
from support.kubernetes.client import Client
from support.kubernetes.real import real_server

IN_FLIGHT = 50
NOTHING = Workload(Path(), "start", "start", "start", [], {}, None, None)
WITHOUT = ("ServiceAccount", "TaintNodesByCondition", "Priority")


def node(number: int) -> dict[str, object]:
    """A node of 4 CPUs."""
    capacity = {"pods": "110", "cpu": "4", "memory": "32Gi"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": f"node-{number}"},
        "status": {"capacity": capacity, "conditions": [ready]},
    }


def pod(number: int) -> dict[str, object]:
    """A pod of a tenth of a CPU."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    return {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}


async def create(client: Client, options: argparse.Namespace) -> None:
    """All nodes and pods."""
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(path: str, body: object) -> None:
        async with gate:
            await client.insist("POST", path, body)

    pods = "/api/v1/namespaces/default/pods"
    await asyncio.gather(*(one("/api/v1/nodes", node(each)) for each in range(options.nodes)))
    await asyncio.gather(*(one(pods, pod(each)) for each in range(options.pods)))


async def timed(
    url: str, token: str, place: Path, name: str, options: argparse.Namespace
) -> dict[str, float]:
    """Seconds until the first and the last pod is bound."""
    async with Client(url, token, is_checked=False) as client:
        await create(client, options)
        pods = Pods(client)
        pods.start()
        await pods.until(lambda: len(pods.all) == options.pods)
        began = time.monotonic()
        with launched(name, place, kubeconfig(place, url, token), NOTHING):
            await pods.until_bound(list(pods.all))
        await pods.stop()
        bound = [each.bound_at - began for each in pods.all.values()]
        return {"first_s": min(bound), "last_s": max(bound)}


def main() -> None:
    """Take turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schedulers", nargs="+", default=["gantree", "kube-scheduler"])
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.schedulers}
    for _ in range(options.rounds):
        for name in options.schedulers:
            with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
                with real_server(Path(directory), without=WITHOUT) as (url, token):
                    figures = asyncio.run(timed(url, token, Path(directory), name, options))
                found[name].append(figures)
    middle = {
        name: {key: round(median(each[key] for each in rows), 2) for key in ("first_s", "last_s")}
        for name, rows in found.items()
    }
    print(json.dumps(middle, indent=2))


if __name__ == "__main__":
    main()
