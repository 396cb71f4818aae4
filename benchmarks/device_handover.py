"""Is a device ever allocated twice while gangs preempt each other for devices and the scheduler is killed?

    PYTHONPATH=tests:benchmarks KUBEBUILDER_ASSETS=DIRECTORY python benchmarks/device_handover.py --kills 200 [--seed 1]

A real API server with the controllers of claims, and gantree as a process of its own. Two gangs of low priority fill
all devices; gangs of a high priority, whose claims ask for other combinations of devices, come one after the other,
preempt, run and end, and the pods that were preempted are made again. The scheduler is killed (kill -9) at moments of a
handover, drawn by the seed: as it starts, as a pod is evicted, as a claim loses or gets its devices, as a pod is bound.
It is started again at once. Every change of every claim is read in the order of the server. Exits 1 where a device is
two claims', a gang is partial for over a minute, a gang is not bound in the end, or a claim keeps its devices.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scheduler_perf.lists import Workload
from scheduler_perf.processes import NAME, kubeconfig, launched
from support.devices import GPU, NIC, gpu, nic, request
from support.kubernetes.client import Client, path_of
from support.kubernetes.controllers.kubelet import Kubelet
from support.kubernetes.real import real_controllers, real_server
from support.kubernetes.server.statuses import Json

NOTHING = Workload(Path(), "handover", "handover", "handover", [], {}, None, None)
DRA = "resource.k8s.io/v1"
NODES, PAIRS = ("n0", "n1"), 4
SAME = {"requests": [], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
TEMPLATES: dict[str, tuple[list[Json], list[Json]]] = {
    "pair": ([request("gpu", "gpu"), request("nic", "nic")], [SAME]),
    "one": ([request("gpu", "gpu")], []),
    "two": ([request("gpu", "gpu", 2)], []),
}
HIGH = (("pair", 5), ("one", 6), ("two", 3))
"""Templates and sizes of which no gang fits beside both of the low ones."""
POLICY = "preset: gantree\nevictions: {per_job_per_day: 1000000, min_run: 0s, grace: 1s}\n"
MOMENTS = ("started", "evicted", "released", "allocated", "bound")
COMES_WITHIN_S, LOOKS_EVERY_S = 10.0, 0.05
PARTIAL_S, ENDS_WITHIN_S = 60.0, 300.0


@dataclass(slots=True)
class Watched:
    """What watches tell: pods, the devices of each claim, devices that two claims had, and moments of a handover."""

    client: Client
    pods: dict[str, Json] = field(default_factory=dict)
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    moments: Counter[str] = field(default_factory=Counter)

    async def follow(self, plural: str, note: Callable[[str, Json], None]) -> None:
        """Read all objects of a kind, in the order of their changes."""
        path = path_of("v1" if plural == "pods" else DRA, plural)
        async for kind, content in self.client.follow(path, {}):
            note(kind, content)

    def note_claim(self, kind: str, claim: Json) -> None:
        """A claim has changed."""
        uid, allocation = claim["metadata"]["uid"], claim.get("status", {}).get("allocation")
        results = allocation["devices"]["results"] if allocation and kind != "DELETED" else ()
        found = tuple(f"{each['driver']}/{each['pool']}/{each['device']}" for each in results)
        before = self.devices.pop(uid, ())
        for other, devices in self.devices.items():
            both = set(devices) & set(found)
            self.twice += [f"{device}: {uid} and {other}" for device in sorted(both)]
        if found:
            self.devices[uid] = found
        if found != before:
            self.moments["allocated" if found else "released"] += 1

    def note_pod(self, kind: str, pod: Json) -> None:
        """A pod has changed."""
        name = pod["metadata"]["name"]
        before = self.pods.pop(name, None)
        if kind != "DELETED":
            self.pods[name] = pod
        if before is not None and _is_going(pod) and not _is_going(before):
            self.moments["evicted"] += 1
        if before is not None and _node(pod) and not _node(before):
            self.moments["bound"] += 1

    def of_gang(self, gang: str) -> list[Json]:
        """The pods of a gang that are to stay."""
        pods = [pod for name, pod in self.pods.items() if name.startswith(f"{gang}-")]
        return [pod for pod in pods if not _is_going(pod) and not _has_ended(pod)]


def _is_going(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _has_ended(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


class Gangs:
    """Who makes pods: those of the gangs that are wanted exist, and ended ones are made again."""

    def __init__(self, watched: Watched, kubelet: Kubelet) -> None:
        self._watched, self._client, self._kubelet = watched, watched.client, kubelet
        self.wanted: dict[str, tuple[str, int, str]] = {}
        self.handovers, self.longest_partial_s = 0, 0.0
        self._partial_since: dict[str, float] = {}
        self._made = 0

    async def keep(self) -> None:
        """Make what lacks, until cancelled."""
        while True:
            for gang, (template, size, priority) in [*self.wanted.items()]:
                await self._keep(gang, template, size, priority)
            await asyncio.sleep(LOOKS_EVERY_S)

    async def _keep(self, gang: str, template: str, size: int, priority: str) -> None:
        there = self._watched.of_gang(gang)
        self._note_partial(gang, sum(map(bool, map(_node, there))) not in (0, size))
        for name, pod in [*self._watched.pods.items()]:
            if name.startswith(f"{gang}-") and _has_ended(pod) and not _is_going(pod):
                await self._delete(name)
        for _ in range(size - len(there)):
            self._made += 1
            name = f"{gang}-{self._made}"
            await self._client.insist(
                "POST", path_of("v1", "pods", "default"), _pod(name, gang, template, size, priority)
            )
            while name not in self._watched.pods:
                await asyncio.sleep(0.01)

    def _note_partial(self, gang: str, is_partial: bool) -> None:
        since = self._partial_since.setdefault(gang, time.monotonic())
        if is_partial:
            self.longest_partial_s = max(self.longest_partial_s, time.monotonic() - since)
        else:
            del self._partial_since[gang]

    async def hand_over(self, number: int, chance: random.Random) -> None:
        """A gang of high priority comes, runs and goes."""
        gang, (template, size) = f"high{number}", chance.choice(HIGH)
        self.wanted[gang] = (template, size, "production")
        await until(lambda: self.runs(gang), f"{gang} is not bound: {self.told()}")
        self.handovers += 1
        del self.wanted[gang]
        for name in [name for name in self._watched.pods if name.startswith(f"{gang}-")]:
            await self._kubelet.exit("default", name)
            await self._delete(name)

    def runs(self, gang: str) -> bool:
        """Whether all pods of a gang run."""
        pods = self._watched.of_gang(gang)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return gang in self.wanted and len(running) == self.wanted[gang][1]

    async def end(self) -> None:
        """Delete all pods."""
        self.wanted.clear()
        for name in [*self._watched.pods]:
            await self._delete(name)

    def told(self) -> str:
        """How things stand."""
        pods = {name: (_node(pod), pod["status"]) for name, pod in self._watched.pods.items()}
        return json.dumps(pods)[:4000]

    async def _delete(self, name: str) -> None:
        path = path_of("v1", "pods", "default", name)
        await self._client.insist("DELETE", path, {"gracePeriodSeconds": 0})


def _pod(name: str, gang: str, template: str, size: int, priority: str) -> Json:
    """A pod of a gang, with a claim of a template."""
    labels = {"gantree.io/gang": gang, "gantree.io/priority": priority}
    requests = {"cpu": "1", "memory": "1Gi"}
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"gantree.io/gang-size": str(size)},
        },
        "spec": {
            "schedulerName": NAME,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
            "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": template}],
        },
    }


async def until(done: Callable[[], bool], what: str, within_s: float = ENDS_WITHIN_S) -> None:
    """Wait for something. Raises SystemExit when that takes too long."""
    ends_at = time.monotonic() + within_s
    while not done():
        if time.monotonic() > ends_at:
            raise SystemExit(what)
        await asyncio.sleep(LOOKS_EVERY_S)


async def create_cluster(client: Client, kubelet: Kubelet) -> None:
    """Nodes with a GPU and a NIC at each PCIe root, device classes and templates of claims."""
    for name, driver in (("gpu", GPU), ("nic", NIC)):
        selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
        body = {"metadata": {"name": name}, "spec": {"selectors": [selector]}}
        await _create(client, "deviceclasses", body)
    for node in NODES:
        await kubelet.register(node, {"cpu": "96", "memory": "1024Gi", "pods": "110"})
        for driver, make in ((GPU, gpu), (NIC, nic)):
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            devices = [make(number, f"pci0000:{number:02x}") for number in range(PAIRS)]
            spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
            await _create(
                client, "resourceslices", {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}
            )
    for name, (requests, constraints) in TEMPLATES.items():
        spec = {"spec": {"devices": {"requests": requests, "constraints": constraints}}}
        await _create(
            client, "resourceclaimtemplates", {"metadata": {"name": name}, "spec": spec}, "default"
        )


async def _create(client: Client, plural: str, body: Json, namespace: str = "") -> None:
    reply = await client.insist("POST", path_of(DRA, plural, namespace), body)
    assert reply.code == 201, reply.content


async def kill_often(
    place: Path, config: Path, watched: Watched, kills: int, chance: random.Random
) -> dict[str, int]:
    """Run the scheduler and kill it at so many moments; gives how many of each kind. It runs on after the last."""
    killed: Counter[str] = Counter()
    policy = place / "policy.yaml"
    policy.write_text(POLICY)
    for number in range(kills):
        with launched("gantree", place, config, NOTHING, str(policy)) as process:
            moment, seen = chance.choice(MOMENTS), watched.moments.copy()
            ends_at = time.monotonic() + (
                chance.uniform(0.5, 3.0) if moment == "started" else COMES_WITHIN_S
            )
            while watched.moments[moment] == seen[moment] and time.monotonic() < ends_at:
                await asyncio.sleep(0.002)
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.05)))
            is_met = watched.moments[moment] != seen[moment]
            assert not process.has_ended, process.log.read_text()[-2000:]
            process.stop(signal.SIGKILL)
            killed[moment if is_met or moment == "started" else "idle"] += 1
        if number % 20 == 19:
            print(f"{number + 1} kills", file=sys.stderr, flush=True)
    return dict(killed)


async def measure(url: str, token: str, place: Path, options: argparse.Namespace) -> Json:
    """Hand devices over under kills, then let everything come to rest, and end."""
    config, chance = kubeconfig(place, url, token), random.Random(options.seed)
    async with Client(url, token, is_checked=False) as client, Kubelet(client) as kubelet:
        await create_cluster(client, kubelet)
        watched = Watched(client)
        gangs = Gangs(watched, kubelet)
        gangs.wanted = {"low0": ("pair", 4, "research"), "low1": ("one", 4, "research")}

        async def hand_over_again_and_again() -> None:
            number = 0
            while True:
                number += 1
                await gangs.hand_over(number, chance)
                await asyncio.sleep(chance.uniform(0.0, 1.0))

        follow = (
            watched.follow("resourceclaims", watched.note_claim),
            watched.follow("pods", watched.note_pod),
        )
        tasks = [asyncio.create_task(each) for each in (*follow, gangs.keep())]
        handing = asyncio.create_task(hand_over_again_and_again())
        killed = await kill_often(
            place, config, watched, options.kills, random.Random(-options.seed)
        )
        with launched("gantree", place, config, NOTHING, str(place / "policy.yaml")):
            before = gangs.handovers
            await until(
                lambda: handing.done() or gangs.handovers > before, "no gang comes through any more"
            )
            handing.cancel()
            for outcome in await asyncio.gather(handing, return_exceptions=True):
                if not isinstance(outcome, asyncio.CancelledError):
                    raise SystemExit(str(outcome))
            for gang in [each for each in gangs.wanted if each.startswith("high")]:
                del gangs.wanted[gang]
            await until(
                lambda: gangs.runs("low0") and gangs.runs("low1"), f"a gang is lost: {gangs.told()}"
            )
            await gangs.end()
            await until(
                lambda: not watched.pods and not watched.devices, f"leaked: {watched.devices}"
            )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "kills": killed,
        "handovers": gangs.handovers,
        "allocations": watched.moments["allocated"],
        "evictions": watched.moments["evicted"],
        "twice": watched.twice,
        "longest_partial_s": round(gangs.longest_partial_s, 1),
    }


def main() -> None:
    """Print what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    controllers = ("resourceclaim-controller", "garbage-collector-controller")
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        place = Path(directory)
        with real_server(place) as (url, token), real_controllers(place, url, *controllers):
            found = asyncio.run(measure(url, token, place, options))
    print(json.dumps(found, indent=2))
    raise SystemExit(bool(found["twice"]) or found["longest_partial_s"] > PARTIAL_S)


if __name__ == "__main__":
    main()
