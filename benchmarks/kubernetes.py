"""How fast gantree binds pods on Kubernetes, beside a bare loop of bindings against the same server.

    python benchmarks/kubernetes.py [--nodes N] [--pods N] [--rounds N] [--json FILE]

The server is gantree's API server for tests, in a process of its own. Each round makes N pods of one GPU twice: first a
loop with 32 bindings in flight binds them to nodes that it was told, then gantree, which has to see them, decide and
bind. CPU is that of this process alone. Also told: how long gantree takes from its start until it is ready to decide,
with all nodes and the pods of earlier rounds listed, and its memory then.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from gantree.control.controller import Controller
from gantree.executors.kubernetes.cluster import KubernetesCluster
from gantree.executors.kubernetes.opening import Opened
from gantree.executors.kubernetes.reach import Reach
from gantree.executors.kubernetes.settings import KubernetesSettings
from gantree.formats.policies import PRESETS
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.testing.kubernetes.client import Client

IN_FLIGHT = 32
GPUS_OF_NODE = 8
PODS = "/api/v1/namespaces/default/pods"


@contextmanager
def server() -> Iterator[str]:
    """The API server as a process, and where it listens."""
    command = [sys.executable, "-m", "gantree.testing.kubernetes", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        yield run.stdout.readline().strip()
        run.terminate()


async def in_flight(client: Client, asked: Sequence[tuple[str, str, Any]]) -> float:
    """Send requests, 32 at a time; give the seconds that it took."""
    line = iter(asked)

    async def work() -> None:
        for method, path, body in line:
            await client.insist(method, path, body)

    start_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return time.perf_counter() - start_s


def node(number: int) -> dict[str, Any]:
    labels = {
        "network.topology.nvidia.com/leaf": f"l{number // 32}",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
    }
    capacity = {"cpu": "96", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": f"n{number}", "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": ready},
    }


def pod(name: str, scheduler: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    container = {
        "name": "main",
        "image": "train",
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def binding(name: str, to: str) -> tuple[str, str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": to}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return "POST", f"{PODS}/{name}/binding", body


async def bare(url: str, count: int, nodes: int, label: str) -> float:
    """Bindings a second of a loop that knows where everything goes."""
    async with Client(url) as client:
        names = [f"bare-{label}-{number}" for number in range(count)]
        await in_flight(client, [("POST", PODS, pod(name, "bare")) for name in names])
        bindings = [binding(name, f"n{number % nodes}") for number, name in enumerate(names)]
        taken_s = await in_flight(client, bindings)
        await in_flight(
            client, [("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0}) for name in names]
        )
        return count / taken_s


class Gantree:
    """gantree on the server, stepped here."""

    def __init__(self, url: str, state_dir: Path) -> None:
        self._controller: Controller | None = None
        start_s = time.perf_counter()
        opened = Opened(KubernetesSettings(Reach(url)), lambda: None)

        def make(described: Cluster, emit: Any, clock: Any) -> KubernetesCluster:
            return opened.cluster(emit, clock, lambda: self.controller.ledger)

        journal = SqliteJournal(state_dir)
        self._controller = Controller(journal, PRESETS["gantree"], make, site=opened.site)
        self._controller.recover()
        self._controller.step()
        self.ready_s = time.perf_counter() - start_s

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    def until_running(self, count: int) -> tuple[float, float]:
        """Step until so many gangs more are bound; give seconds and seconds of CPU."""
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        ledger = self.controller.ledger
        goal = len(ledger.holding) + count
        while len(ledger.holding) < goal or self.binding():
            if not self.controller.step():
                time.sleep(0.001)
        return time.perf_counter() - start_s, time.process_time() - start_cpu_s

    def binding(self) -> bool:
        """Whether writes are on their way."""
        cluster: Any = self.controller.cluster
        return any(each.binding for each in cluster._members._attempts.values())


def gantree(url: str, count: int, state_dir: Path, label: str) -> dict[str, float]:
    """Bindings a second, CPU a pod, and how long the start took."""
    running = Gantree(url, state_dir)

    async def hand_over() -> None:
        async with Client(url) as client:
            names = [f"gantree-{label}-{number}" for number in range(count)]
            await in_flight(client, [("POST", PODS, pod(name, "gantree")) for name in names])

    asyncio.run(hand_over())
    taken_s, cpu_s = running.until_running(count)
    running.controller.close()
    peak_MB = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "ready_s": running.ready_s,
        "per_s": count / taken_s,
        "cpu_ms_a_pod": 1000 * cpu_s / count,
        "peak_MB": peak_MB,
    }


def main() -> None:
    wanted = _options()
    rounds = []
    with server() as url:
        asyncio.run(_nodes(url, wanted.nodes))
        for number in range(wanted.rounds):
            loop = asyncio.run(bare(url, wanted.pods, wanted.nodes, str(number)))
            with tempfile.TemporaryDirectory() as place:
                told = gantree(url, wanted.pods, Path(place), str(number))
            rounds.append({"bare_per_s": loop, **told})
            print({name: round(value, 2) for name, value in rounds[-1].items()}, flush=True)
    share = median(each["per_s"] / each["bare_per_s"] for each in rounds)
    print(f"{share:.0%} of a bare loop")
    if wanted.json:
        wanted.json.write_text(json.dumps(rounds), encoding="utf-8")


async def _nodes(url: str, count: int) -> None:
    async with Client(url) as client:
        await in_flight(
            client, [("POST", "/api/v1/nodes", node(number)) for number in range(count)]
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
