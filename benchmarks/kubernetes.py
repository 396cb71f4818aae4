"""How fast gantree is on Kubernetes: bindings beside a bare loop, a large gang, a large cluster, a steady stream.

    PYTHONPATH=tests python benchmarks/kubernetes.py [singles|gang|ready|stream]... [--nodes N] [--pods N] [--per-s N]
    [--rounds N]

The server is gantree's API server for tests, in a process of its own, or a real one where KUBEBUILDER_ASSETS names one;
gantree is another process, stepped as the daemon steps it. CPU is that of gantree's process alone, from before the pods
were made: it has to see them, decide, bind, and see them bound.

singles: N pods of one GPU, first bound by a loop with 32 bindings in flight that was told where they go, then by
gantree. gang: one gang of 512 pods with a required tier. ready: from gantree's start until it may decide, with N nodes
and six pods on each of them. stream: so many pods a second; from when a pod was seen until it was decided about.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from gantree.api.server.daemon import SWITCH_S
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import POLL_S
from gantree.control.garbage import set_all_apart, set_survivors_apart, without_collecting
from gantree.core.scheduler import Decision
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings
from gantree.executors.kubernetes.cluster import KubernetesCluster
from gantree.executors.kubernetes.opening import Opened
from gantree.executors.kubernetes.writes.writes import Bound
from gantree.formats.policy.reader import read_policy
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.events import Event
from gantree.model.orders import Order
from gantree.policy.rules import Policy
from support.kubernetes.client import Client
from support.kubernetes.real import is_asked_for, real_server

IN_FLIGHT = 32
GPUS_OF_NODE = 8
NODES_OF_SPINE = 128
MEMBERS = 512
PODS_OF_NODE = 6
IDLE_S = 1.0
PODS = "/api/v1/namespaces/default/pods"
Figures = dict[str, float]


# ----- gantree's process


class Gantree:
    """gantree on the server, stepped here as the daemon steps it."""

    def __init__(self, at: "Server", state_dir: Path, policy: Policy) -> None:
        self._policy = policy
        self._controller: Controller | None = None
        self._woken = threading.Event()
        self.seen_at: dict[str, float] = {}
        self.took_s: list[float] = []
        self.decision_cpu_s: list[float] = []
        start_s = time.perf_counter()
        with without_collecting():
            self._controller = self._started(at, state_dir)
            self._controller.recover()
        set_all_apart()
        self._controller.step()
        self.ready_s = time.perf_counter() - start_s
        self.bound = 0
        self._count_bound()

    def _started(self, at: "Server", state_dir: Path) -> Controller:
        connection = Connection(at.url, ask_token=lambda: (at.token, float("inf")), verify=False)
        opened = Opened(KubernetesSettings(connection), self._woken.set)
        self._api = opened._api

        def make(described: Cluster, emit: Any, clock: Any) -> KubernetesCluster:
            return opened.cluster(emit, clock, lambda: self.controller.decided)

        return Controller(
            SqliteJournal(state_dir), self._policy, make, site=opened.site, may_grow=True
        )

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    def time_decisions(self) -> None:
        """Note the CPU of each decision from now on."""
        scheduler = self.controller.turn_runner.scheduler
        handle = scheduler.handle

        def timed(events: Sequence[Event]) -> Decision:
            start_s = time.thread_time()
            decision = handle(events)
            self.decision_cpu_s.append(time.thread_time() - start_s)
            return decision

        scheduler.handle = timed  # type: ignore[method-assign]  # measured from outside

    def watch(self) -> None:
        """Note when each pod is seen, and when its job is told to start."""
        see, cluster = self._api._report, self.controller.cluster
        carry_out = cluster.carry_out

        def seen(told: Any) -> None:
            noun, _, before, pod = told
            if noun == "pod" and before is None:
                self.seen_at[pod.metadata.uid] = time.perf_counter()
            see(told)

        def ordered(order: Order) -> None:
            uid = order.job.rpartition(".")[2].partition("_")[0]
            at = self.seen_at.pop(uid, None)
            if at is not None:
                self.took_s.append(time.perf_counter() - at)
            carry_out(order)

        api: Any = self._api
        api._report = seen  # measured from outside
        cluster.carry_out = ordered  # type: ignore[method-assign]  # measured from outside

    def until_running(self, pods: int) -> float:
        """Step until so many pods more are bound; give the seconds."""
        start_s, goal = time.perf_counter(), self.bound + pods
        while self.bound < goal:
            self._woken.clear()
            self.controller.step()
            self._woken.wait(POLL_S)
            set_survivors_apart()
        return time.perf_counter() - start_s

    def step_for(self, seconds: float) -> None:
        """Step for so long."""
        ends_at = time.perf_counter() + seconds
        while time.perf_counter() < ends_at:
            self._woken.clear()
            self.controller.step()
            self._woken.wait(POLL_S)

    def until_idle(self) -> None:
        """Step until there has been nothing to do for IDLE_S."""
        idle_since = time.perf_counter()
        while time.perf_counter() - idle_since < IDLE_S:
            self._woken.clear()
            if self.controller.step():
                idle_since = time.perf_counter()
            self._woken.wait(POLL_S)

    def _count_bound(self) -> None:
        """Count pods whose binding the server has taken, from now on."""
        cluster: Any = self.controller.cluster
        attempts = cluster._attempts
        on_bound = attempts.on_bound

        def counted(done: Bound) -> None:
            on_bound(done)
            self.bound += attempts._members.attempts[done.job, done.attempt].size - len(done.failed)

        attempts.on_bound = counted  # measured from outside


def be_gantree(at: "Server", state_dir: Path, policy: str) -> None:
    """Answer each line with figures: "bind N" once N pods more are bound, "watch" from when on moments are noted.

    "step N" goes on for N seconds, "idle" answers once there is nothing to do; "from" is when CPU begins to count.
    """
    sys.setswitchinterval(SWITCH_S)
    running = Gantree(at, state_dir, read_policy(policy, "policy.yaml"))
    peak_MB = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu_s = time.process_time()
    _say({"ready_s": running.ready_s, "ready_cpu_s": cpu_s, "peak_MB": peak_MB})
    for line in sys.stdin:
        verb, _, rest = line.strip().partition(" ")
        if verb == "watch":
            running.watch()
            continue
        if verb == "step":
            running.step_for(float(rest))
        if verb == "idle":
            running.until_idle()
            _say({})
        if verb == "from":
            cpu_s = time.process_time()
            running.time_decisions()
        if verb == "bind":
            taken_s = running.until_running(int(rest))
            used_s = time.process_time() - cpu_s
            slowest_s = sorted(running.took_s)
            p99_s = quantiles(slowest_s, n=100)[-1] if len(slowest_s) > 1 else 0.0
            _say(
                {
                    "taken_s": taken_s,
                    "cpu_s": used_s,
                    "p50_s": _mid(slowest_s),
                    "p99_s": p99_s,
                    "deciding_cpu_s": sum(running.decision_cpu_s),
                    "longest_cpu_s": max(running.decision_cpu_s),
                }
            )
    running.controller.close()


def _mid(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def _say(figures: Figures) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


class GantreeProcess:
    """gantree in a process of its own, and the figures that it tells."""

    def __init__(self, at: "Server", policy: str = "preset: gantree") -> None:
        self._place = tempfile.TemporaryDirectory()
        told = (at.url, at.token, self._place.name, policy)
        command = [sys.executable, __file__, "--be-gantree", *told]
        self._run = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready: Figures = self._answer()

    def say(self, line: str) -> None:
        assert self._run.stdin is not None
        self._run.stdin.write(line + "\n")
        self._run.stdin.flush()

    def until_idle(self) -> None:
        self.say("idle")
        self._answer()

    def bind(self, pods: int) -> Figures:
        self.say(f"bind {pods}")
        return self._answer()

    def close(self) -> None:
        self._run.communicate(timeout=60)
        self._place.cleanup()

    def _answer(self) -> Figures:
        assert self._run.stdout is not None
        figures: Figures = json.loads(self._run.stdout.readline())
        return figures


# ----- the server and what is on it


class Server(NamedTuple):
    """Where the API server listens, and an administrator's token."""

    url: str
    token: str


@contextmanager
def server() -> Iterator[Server]:
    """The API server as a process."""
    if is_asked_for():
        with tempfile.TemporaryDirectory() as place, real_server(Path(place)) as (url, token):
            yield Server(url, token)
        return
    command = [sys.executable, "-m", "support.kubernetes", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        yield Server(run.stdout.readline().strip(), "")
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


async def send(at: Server, asked: Sequence[tuple[str, str, Any]], per_s: float = 0.0) -> float:
    """Send requests, 32 at a time or so many a second; give the seconds that it took."""
    async with Client(at.url, at.token, is_checked=False) as client:
        if not per_s:
            return await in_flight(client, asked)
        start_s, sent = time.perf_counter(), []
        for number, (method, path, body) in enumerate(asked):
            await asyncio.sleep(max(0.0, start_s + number / per_s - time.perf_counter()))
            sent.append(asyncio.ensure_future(client.insist(method, path, body)))
        await asyncio.gather(*sent)
        return time.perf_counter() - start_s


def node(number: int) -> dict[str, Any]:
    labels = {
        "network.topology.nvidia.com/spine": f"s{number // NODES_OF_SPINE}",
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


def pod(name: str, scheduler: str, gpus: int = 1, **told: Any) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": str(gpus)}
    container = {
        "name": "main",
        "image": "train",
        "resources": {"requests": amounts, "limits": amounts},
    }
    spec = {"schedulerName": scheduler, "containers": [container], **told.pop("spec", {})}
    return {"metadata": {"name": name, **told}, "spec": spec}


def making(pods: Sequence[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    return [("POST", PODS, each) for each in pods]


def binding(name: str, to: str) -> tuple[str, str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": to}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return "POST", f"{PODS}/{name}/binding", body


def make_nodes(at: Server, count: int) -> None:
    """Nodes join; who finds them ready takes away the taint that a new one has."""
    nodes = [node(number) for number in range(count)]
    asyncio.run(send(at, [("POST", "/api/v1/nodes", each) for each in nodes]))
    ready = [(f"/api/v1/nodes/{each['metadata']['name']}", {**each, "spec": {}}) for each in nodes]
    asyncio.run(send(at, [("PUT", path, body) for path, body in ready]))


def bare(at: Server, count: int, nodes: int) -> float:
    """Bindings a second of a loop that knows where everything goes."""
    names = [f"bare-{number}" for number in range(count)]
    asyncio.run(send(at, making([pod(name, "bare") for name in names])))
    taken_s = asyncio.run(
        send(at, [binding(name, f"n{number % nodes}") for number, name in enumerate(names)])
    )
    at_once = {"gracePeriodSeconds": 0}
    asyncio.run(send(at, [("DELETE", f"{PODS}/{name}", at_once) for name in names]))
    return count / taken_s


# ----- what is measured


def singles(nodes: int, pods: int, per_s: float) -> Figures:
    """Pods of one GPU, beside a bare loop."""
    with server() as at:
        make_nodes(at, nodes)
        loop_per_s = bare(at, pods, nodes)
        run = GantreeProcess(at)
        run.say("from")
        asyncio.run(send(at, making([pod(f"p{number}", "gantree") for number in range(pods)])))
        told = run.bind(pods)
        run.close()
        per_s = pods / told["taken_s"]
        cpu_ms, decided_ms = (1000 * told[word] / pods for word in ("cpu_s", "deciding_cpu_s"))
    return {
        "bare_per_s": loop_per_s,
        "per_s": per_s,
        "share": per_s / loop_per_s,
        "cpu_ms_a_pod": cpu_ms,
        "deciding_ms_a_pod": decided_ms,
    }


def gang(nodes: int, pods: int, per_s: float) -> Figures:
    """One gang, all of it below one domain of the widest tier."""
    words: dict[str, Any] = {
        "labels": {"gantree.io/gang": "large"},
        "annotations": {
            "gantree.io/gang-size": str(MEMBERS),
            "gantree.io/required-topology": "spine",
        },
    }
    made = [pod(f"g-{number}", "gantree", **words) for number in range(MEMBERS)]
    with server() as at:
        make_nodes(at, nodes)
        loop_per_s = bare(at, MEMBERS, nodes)
        run = GantreeProcess(at)
        asyncio.run(send(at, making(made)))
        run.say("from")
        told = run.bind(MEMBERS)
        run.close()
    return {
        "bare_per_s": loop_per_s,
        "per_s": MEMBERS / told["taken_s"],
        "share": MEMBERS / told["taken_s"] / loop_per_s,
        "cpu_ms_a_pod": 1000 * told["cpu_s"] / MEMBERS,
        "decision_cpu_ms": 1000 * told["longest_cpu_s"],
    }


def ready(nodes: int, pods: int, per_s: float) -> Figures:
    """A start on a full cluster."""
    on_nodes = [
        pod(f"o{number}-{which}", "other", spec={"nodeName": f"n{number}"})
        for number in range(nodes)
        for which in range(PODS_OF_NODE)
    ]
    with server() as at:
        make_nodes(at, nodes)
        asyncio.run(send(at, making(on_nodes)))
        run = GantreeProcess(at)
        run.close()
    return run.ready


def stream(nodes: int, pods: int, per_s: float) -> Figures:
    """Pods that come one by one."""
    with server() as at:
        make_nodes(at, nodes)
        run = GantreeProcess(at)
        run.say("watch")
        run.say("from")
        run.say(f"bind {pods}")
        made = [pod(f"p{number}", "gantree") for number in range(pods)]
        taken_s = asyncio.run(send(at, making(made), per_s))
        told = run._answer()
        run.close()
    return {
        "came_per_s": pods / taken_s,
        "p50_ms": 1000 * told["p50_s"],
        "p99_ms": 1000 * told["p99_s"],
        "cpu_ms_a_pod": 1000 * told["cpu_s"] / pods,
    }


MEASURES = {"singles": singles, "gang": gang, "ready": ready, "stream": stream}


def main() -> None:
    wanted = _options()
    if wanted.be_gantree:
        url, token, state_dir, policy = wanted.be_gantree
        be_gantree(Server(url, token), Path(state_dir), policy)
        return
    found: dict[str, list[Figures]] = {}
    for name in wanted.measures or MEASURES:
        for _ in range(wanted.rounds):
            told = MEASURES[name](wanted.nodes, wanted.pods, wanted.per_s)
            found.setdefault(name, []).append(told)
            print(name, {word: round(value, 3) for word, value in told.items()}, flush=True)
    if wanted.json:
        wanted.json.write_text(json.dumps(found), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measures", nargs="*", choices=[*MEASURES, []])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=4000)
    parser.add_argument("--per-s", type=float, default=500.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--be-gantree", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
