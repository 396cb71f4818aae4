"""What must hold at every moment, by what the API server's watches tell.

No pod changes its node, no node has more GPUs bound than it has, no device is allocated to two claims, and no gang is
there in part for longer than PARTIAL_S: some of its pods have a node and have not ended, and others have none.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from failures.workloads import LABEL, Workload
from support.kubernetes.client import Client, path_of

Json = dict[str, Any]
PARTIAL_S = 60.0
ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Watched:
    """The state by the newest events, and what was wrong. gpus: of each node; longest_partial_s: of any gang."""

    gpus: Mapping[str, int]
    workloads: Mapping[str, Workload]
    pods: dict[str, Json] = field(default_factory=dict)
    claims: dict[str, Json] = field(default_factory=dict)
    wrong: dict[str, None] = field(default_factory=dict)
    partial_since: dict[str, float] = field(default_factory=dict)
    longest_partial_s: float = 0.0
    events: int = 0

    async def follow_pods(self, client: Client) -> None:
        """For ever."""
        async for kind, pod in client.follow(path_of("v1", "pods"), {}):
            self.events += 1
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            before = self.pods.get(uid, {}).get("spec", {}).get("nodeName")
            if before and node != before:
                self._say(f"{pod['metadata']['name']} was bound to {before}, then to {node}")
            if kind == "DELETED":
                self.pods.pop(uid, None)
            else:
                self.pods[uid] = pod
            await self._check_node(client, node)
            self._check_gang(pod["metadata"].get("labels", {}).get(LABEL, ""))

    async def follow_claims(self, client: Client) -> None:
        """For ever."""
        path = path_of("resource.k8s.io/v1", "resourceclaims")
        async for kind, claim in client.follow(path, {}):
            self.events += 1
            uid = claim["metadata"]["uid"]
            if kind == "DELETED":
                self.claims.pop(uid, None)
            else:
                self.claims[uid] = claim
            await self._check_devices(client)

    async def look_again(self) -> None:
        """Gangs that stay as they are make no events."""
        while True:
            for name in list(self.workloads):
                self._check_gang(name)
            await asyncio.sleep(1.0)

    def _say(self, what: str) -> None:
        self.wrong[what] = None

    async def _check_node(self, client: Client, node: str | None) -> None:
        """A list is of one moment; events after a list that was needed again may come in another order."""
        if node and self._held(node, self.pods.values()) > self.gpus[node]:
            listed = (await client.insist("GET", path_of("v1", "pods"))).content["items"]
            if (held := self._held(node, listed)) > self.gpus[node]:
                there = [_shown(each) for each in listed if each["spec"].get("nodeName") == node]
                self._say(f"{node} has {held} GPUs bound: {', '.join(there)}")

    def _held(self, node: str, pods: Iterable[Json]) -> int:
        there = [each for each in pods if each["spec"].get("nodeName") == node]
        return sum(_gpus(each) for each in there if each["status"].get("phase") not in ENDED)

    async def _check_devices(self, client: Client) -> None:
        if allocated_twice(self.claims.values()):
            path = path_of("resource.k8s.io/v1", "resourceclaims")
            listed = (await client.insist("GET", path)).content["items"]
            for each in allocated_twice(listed):
                self._say(each)

    def _check_gang(self, name: str) -> None:
        workload = self.workloads.get(name)
        if workload is None or not self.is_partial(workload):
            self.partial_since.pop(name, None)
            return
        for_s = time.monotonic() - self.partial_since.setdefault(name, time.monotonic())
        self.longest_partial_s = max(self.longest_partial_s, for_s)
        if for_s > PARTIAL_S:
            self._say(f"{name} is there in part")

    def is_partial(self, workload: Workload) -> bool:
        """Whether some pods of a gang have a node and have not ended, and others have none and have not succeeded."""
        mine = self.pods_of(workload.name)
        done = sum(each["status"].get("phase") == "Succeeded" for each in mine)
        held = sum(
            bool(each["spec"].get("nodeName"))
            and each["status"].get("phase") not in ENDED
            and "deletionTimestamp" not in each["metadata"]
            for each in mine
        )
        return bool(0 < held < workload.pods - done)

    def pods_of(self, name: str) -> list[Json]:
        """The pods of a workload that are there."""
        return [
            each
            for each in self.pods.values()
            if each["metadata"].get("labels", {}).get(LABEL) == name
        ]


def allocated_twice(claims: Iterable[Json]) -> list[str]:
    """Devices of two claims, in words."""
    owner: dict[tuple[str, str], str] = {}
    found = []
    for claim in claims:
        name, status = claim["metadata"]["name"], claim.get("status") or {}
        for each in (status.get("allocation") or {}).get("devices", {}).get("results", ()):
            device = each["pool"], each["device"]
            if device in owner:
                found.append(f"{device} is allocated to {owner[device]} and to {name}")
            owner[device] = name
    return found


def _shown(pod: Json) -> str:
    going = ", going" if "deletionTimestamp" in pod["metadata"] else ""
    of = pod["metadata"]
    return f"{of['name']} ({_gpus(pod)}, {pod['status'].get('phase')}{going}, of {of['creationTimestamp']})"


def _gpus(pod: Json) -> int:
    requests = (
        each.get("resources", {}).get("requests") or {} for each in pod["spec"]["containers"]
    )
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in requests)
