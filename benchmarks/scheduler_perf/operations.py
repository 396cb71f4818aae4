"""Carries out the operations of a workload on an API server, in order, as Kubernetes' own benchmark does.

A method for each operation, by its name in the lists. What runs on in the background (churn, deletions that are not
waited for) ends with the workload. `Measured` says over which pods a workload is measured, and from when to when.
"""

import asyncio
import fnmatch
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from scheduler_perf.churn import churn
from scheduler_perf.claims import allocate_claims, slice_of
from scheduler_perf.lists import Workload
from scheduler_perf.nodes import create_nodes
from scheduler_perf.pods import Key, Pod, Pods, selects
from scheduler_perf.server import Server, namespace_named
from scheduler_perf.templates import CannotRun, Json, rendered
from scheduler_perf.volumes import with_volume

AT_ONCE = {"gracePeriodSeconds": 0}


@dataclass(slots=True)
class Measured:
    """Over which pods, from when to when, in seconds of `time.monotonic`."""

    began_at: float
    ended_at: float
    pods: list[Pod]


@dataclass(slots=True)
class _Collection:
    namespaces: Sequence[str] | None
    selector: dict[str, str] | None
    began_at: float


@dataclass(slots=True)
class Operations:
    """One run of a workload on a server."""

    server: Server
    workload: Workload
    pods: Pods
    measured: list[Measured] = field(default_factory=list)
    _numbers: Any = field(default_factory=count)
    _node_numbers: Any = field(default_factory=count)
    _awaited: set[Key] = field(default_factory=set)
    """Pods that were not waited for yet."""
    _collections: list[_Collection] = field(default_factory=list)
    _background: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> None:
        """All of them. Raises CannotRun."""
        try:
            for operation in self.workload.operations:
                await self._method(operation["opcode"])(operation)
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)

    def _method(self, opcode: str) -> Callable[[Json], Awaitable[None]]:
        if opcode not in OPERATIONS:
            raise CannotRun(f"there is no operation {opcode}")
        method: Callable[[Json], Awaitable[None]] = getattr(self, OPERATIONS[opcode])
        return method

    # ----- the cluster

    async def _create_nodes(self, operation: Json) -> None:
        await create_nodes(self.server, self.workload, operation, self._node_numbers)

    async def _create_resource_driver(self, operation: Json) -> None:
        nodes = (await self.server.send("GET", "/api/v1/nodes"))["items"]
        names = [each["metadata"]["name"] for each in nodes]
        wanted = [name for name in names if fnmatch.fnmatchcase(name, operation["nodes"])]
        slices = [
            slice_of(operation["driverName"], name, operation["maxClaimsPerNode"])
            for name in wanted
        ]
        path = "/apis/resource.k8s.io/v1/resourceslices"
        await self.server.send_all([self.server.send("POST", path, each) for each in slices])

    async def _allocate_claims(self, operation: Json) -> None:
        await allocate_claims(self.server.send, operation["namespace"])

    # ----- any object

    async def _create_namespaces(self, operation: Json) -> None:
        for index in range(operation["count"]):
            name = f"{operation['prefix']}-{index}"
            content = namespace_named(name)
            if path := operation.get("namespaceTemplatePath"):
                content = rendered(self.workload.path(path), index, operation["count"])
                labels = content.get("metadata", {}).get("labels", {})
                content["metadata"] = {"name": name, "labels": labels}
            await self.server.ensure_namespace(name, content)

    async def _create_any(self, operation: Json) -> None:
        file, how_many = self.workload.path(operation["templatePath"]), operation["count"]
        namespace = operation.get("namespace", "default")
        made = [rendered(file, index, how_many) for index in range(how_many)]
        await self.server.ensure_namespace(namespace)
        for each in made[:1]:  # it learns the path for all
            await self.server.create(each, namespace)
        await self.server.send_all([self.server.create(each, namespace) for each in made[1:]])

    async def _update_any(self, operation: Json) -> None:
        file, how_many = self.workload.path(operation["templatePath"]), operation["count"]
        namespace = operation.get("namespace", "default")
        pause_s = 1 / operation["updatePerSecond"] if operation.get("updatePerSecond") else 0.0
        for index in range(how_many):
            await self._update(rendered(file, index, how_many), namespace, operation)
            await asyncio.sleep(pause_s)

    async def _update(self, content: Json, namespace: str, operation: Json) -> None:
        where = content["metadata"].get("namespace", namespace)
        path = f"{await self.server.collection(content, where)}/{content['metadata']['name']}"
        parts = "/".join(["", *operation.get("subresources", ())])
        await self.server.send("PUT", path + parts, content)
        await self.server.send("PUT", f"{path}/status", content)

    # ----- pods

    async def _create_pods(self, operation: Json) -> None:
        namespace = operation.get("namespace") or f"namespace-{next(self._numbers)}"
        await self.server.ensure_namespace(namespace)
        began_at = time.monotonic()
        keys = await self._pods(operation, namespace, operation["count"])
        if operation.get("steadyState"):
            keys = await self._keep_steady(operation, namespace, keys)
        elif operation.get("skipWaitToCompletion"):
            self._awaited.update(keys)
            return
        else:
            await self.pods.until_bound(keys)
        if operation.get("collectMetrics"):
            self._measure(began_at, [self.pods.all[key] for key in keys])

    async def _pods(self, operation: Json, namespace: str, how_many: int) -> list[Key]:
        requests = [self._pod(operation, namespace, index, how_many) for index in range(how_many)]
        created = await self.server.send_all(requests)
        return [(namespace, each["metadata"]["name"]) for each in created]

    async def _pod(self, operation: Json, namespace: str, index: int, how_many: int) -> Json:
        path = operation.get("podTemplatePath")
        file = self.workload.default_pod if path is None else self.workload.path(path)
        content = _default_pod() if file is None else rendered(file, index, how_many)
        if volume := operation.get("persistentVolumeTemplatePath"):
            claim = operation["persistentVolumeClaimTemplatePath"]
            templates = (self.workload.path(volume), self.workload.path(claim))
            content = await with_volume(self.server.send, content, templates, namespace, index)
        asked_at = time.monotonic()
        created = await self.server.create(content, namespace)
        self.pods.asked_at[namespace, created["metadata"]["name"]] = asked_at
        return created

    async def _keep_steady(self, operation: Json, namespace: str, keys: list[Key]) -> list[Key]:
        """For a duration each pod that is bound is deleted, and another created."""
        ends_at, every, live = (
            time.monotonic() + _seconds(operation["duration"]),
            list(keys),
            set(keys),
        )
        while time.monotonic() < ends_at:
            bound = [key for key in live if key in self.pods.all and self.pods.all[key].bound_at]
            if not bound:
                await asyncio.sleep(0.005)
                continue
            await self.server.send_all([self._delete(key, AT_ONCE) for key in bound])
            live.difference_update(bound)
            fresh = await self._pods(operation, namespace, len(bound))
            live.update(fresh)
            every += fresh
        return [key for key in every if key in self.pods.all and self.pods.all[key].bound_at]

    async def _create_pod_sets(self, operation: Json) -> None:
        for index in range(operation["count"]):
            inner = {
                **operation["createPodsOp"],
                "namespace": f"{operation['namespacePrefix']}-{index}",
            }
            await self._create_pods(inner)

    async def _delete(self, key: Key, options: Json | None = None) -> Json:
        return await self.server.send(
            "DELETE", f"/api/v1/namespaces/{key[0]}/pods/{key[1]}", options
        )

    async def _delete_pods(self, operation: Json) -> None:
        deleting = self._delete_slowly(operation)
        if operation.get("skipWaitToCompletion"):
            self._background.append(asyncio.create_task(deleting))
        else:
            await deleting

    async def _delete_slowly(self, operation: Json) -> None:
        selector, namespace = operation.get("labelSelector"), operation["namespace"]
        pause_s = (
            1 / operation["deletePodsPerSecond"] if operation.get("deletePodsPerSecond") else 0
        )
        for key, pod in list(self.pods.all.items()):
            if key[0] == namespace and not pod.is_gone and selects(selector, pod.labels):
                await self._delete(key)
                await asyncio.sleep(pause_s)

    # ----- background

    async def _churn(self, operation: Json) -> None:
        for path in operation["templatePaths"]:
            work = churn(self.server, self.workload.path(path), operation)
            self._background.append(asyncio.create_task(work))

    # ----- waiting and measuring

    async def _barrier(self, operation: Json) -> None:
        """Wait for pods that were not waited for when they were created."""
        wants_bound = operation.get("stageRequirement") != "Attempted"
        namespaces, selector = operation.get("namespaces"), operation.get("labelSelector")
        left = {key for key in self._awaited if namespaces is None or key[0] in namespaces}

        def is_over() -> bool:
            left.difference_update(
                [key for key in left if self._is_past(key, selector, wants_bound)]
            )
            return not left

        if wants_bound:
            self._awaited -= left
        await self.pods.until(is_over)

    def _is_past(self, key: Key, selector: dict[str, str] | None, wants_bound: bool) -> bool:
        pod = self.pods.all.get(key)
        if pod is None:
            return False
        is_meant = not pod.is_gone and selects(selector, pod.labels)
        return not is_meant or bool(pod.bound_at if wants_bound else pod.attempted_at)

    async def _start_collecting(self, operation: Json) -> None:
        self._collections.append(
            _Collection(
                operation.get("namespaces"), operation.get("labelSelector"), time.monotonic()
            )
        )

    async def _stop_collecting(self, _: Json) -> None:
        for each in self._collections:
            pods = self.pods.chosen(each.namespaces, each.selector)
            self._measure(each.began_at, [pod for pod in pods if pod.bound_at >= each.began_at])
        self._collections.clear()

    async def _sleep(self, operation: Json) -> None:
        await asyncio.sleep(_seconds(str(operation["duration"])))

    def _measure(self, began_at: float, pods: list[Pod]) -> None:
        last = max((pod.bound_at for pod in pods), default=time.monotonic())
        self.measured.append(Measured(began_at, last, pods))


OPERATIONS = {
    "createNodes": "_create_nodes",
    "createResourceDriver": "_create_resource_driver",
    "allocResourceClaims": "_allocate_claims",
    "createNamespaces": "_create_namespaces",
    "createAny": "_create_any",
    "updateAny": "_update_any",
    "createPods": "_create_pods",
    "createPodSets": "_create_pod_sets",
    "deletePods": "_delete_pods",
    "churn": "_churn",
    "barrier": "_barrier",
    "startCollectingMetrics": "_start_collecting",
    "stopCollectingMetrics": "_stop_collecting",
    "sleep": "_sleep",
}


def _seconds(duration: str) -> float:
    """A duration of Go: `10s`, `1m`."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    number = duration.rstrip("smh")
    return float(number) * units[duration[len(number) :]]


def _default_pod() -> Json:
    """The pod of Kubernetes' own benchmark where a list names none."""
    amounts = {"cpu": "100m", "memory": "500Mi"}
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10.1",
        "ports": [{"containerPort": 80}],
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-"},
        "spec": {"containers": [container]},
    }
