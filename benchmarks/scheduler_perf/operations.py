"""Carries out the operations of a workload on an API server, in order, as Kubernetes' own benchmark does.

A method for each operation, by its name in the lists. What runs on in the background (churn, deletions that are not
waited for) ends with the workload. `Measured` says over which pods a workload is measured, and from when to when.
"""

import asyncio
import fnmatch
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from scheduler_perf.claims import allocate_claims, slice_of
from scheduler_perf.lists import Workload
from scheduler_perf.pods import Key, Pod, Pods, selects
from scheduler_perf.templates import CannotRun, Json, rendered
from scheduler_perf.volumes import with_volume
from support.kubernetes.client import Client

IN_FLIGHT = 50
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
    """One run of a workload. requests counts those that were sent here."""

    client: Client
    workload: Workload
    pods: Pods
    measured: list[Measured] = field(default_factory=list)
    requests: int = 0
    _numbers: Any = field(default_factory=count)
    _node_numbers: Any = field(default_factory=count)
    _awaited: set[Key] = field(default_factory=set)
    """Pods that were not waited for yet."""
    _collections: list[_Collection] = field(default_factory=list)
    _background: list[asyncio.Task[None]] = field(default_factory=list)
    _namespaces: set[str] = field(default_factory=lambda: {"default"})
    _plurals: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)

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

    # ----- requests

    async def send(self, method: str, path: str, body: object = None) -> Json:
        """A request that must go well."""
        self.requests += 1
        reply = await self.client.insist(method, path, body)
        if reply.code >= 400:
            raise CannotRun(f"{method} {path}: {reply.code} {reply.content.get('message', '')}")
        return reply.content

    async def _send_all(self, requests: Sequence[Coroutine[Any, Any, Json]]) -> list[Json]:
        """All of them, IN_FLIGHT at a time."""
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(request: Coroutine[Any, Any, Json]) -> Json:
            async with gate:
                return await request

        return await asyncio.gather(*map(one, requests))

    async def _collection(self, content: Json, namespace: str) -> str:
        """The path under which objects of this kind are created."""
        version, kind = content["apiVersion"], content["kind"]
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._plurals:
            listed = await self.send("GET", root)
            for each in listed["resources"]:
                if "/" not in each["name"]:
                    self._plurals[version, each["kind"]] = (each["name"], each["namespaced"])
        if (version, kind) not in self._plurals:
            raise CannotRun(f"the server has no {kind} of {version}")
        plural, is_namespaced = self._plurals[version, kind]
        return f"{root}/namespaces/{namespace}/{plural}" if is_namespaced else f"{root}/{plural}"

    async def _create(self, content: Json, namespace: str) -> Json:
        where = content.get("metadata", {}).get("namespace", namespace)
        await self._ensure_namespace(where)
        return await self.send("POST", await self._collection(content, where), content)

    async def _ensure_namespace(self, name: str) -> None:
        if name not in self._namespaces:
            self._namespaces.add(name)
            await self.send("POST", "/api/v1/namespaces", _namespace(name))

    # ----- the cluster

    async def _create_nodes(self, operation: Json) -> None:
        made = [self._node(operation, index) for index in range(operation["count"])]
        created = await self._send_all([self.send("POST", "/api/v1/nodes", each) for each in made])
        strategy = operation.get("nodeAllocatableStrategy", {}).get("csiNodeAllocatable")
        if strategy:
            drivers = [
                {"name": driver, "nodeID": driver, "allocatable": limit}
                for driver, limit in strategy.items()
            ]
            await self._send_all([self._csi_node(each, drivers) for each in created])

    def _node(self, operation: Json, index: int) -> Json:
        path = operation.get("nodeTemplatePath", None)
        made = (
            rendered(self.workload.path(path), index, operation["count"])
            if path
            else _default_node()
        )
        meta = made["metadata"]
        if "name" not in meta:
            meta["name"] = f"{meta.pop('generateName')}{next(self._node_numbers):05d}"
        meta.setdefault("labels", {})["kubernetes.io/hostname"] = meta["name"]
        if labels := operation.get("labelNodePrepareStrategy"):
            values = labels["labelValues"]
            meta["labels"][labels["labelKey"]] = values[index % len(values)]
        if more := operation.get("nodeAllocatableStrategy", {}).get("nodeAllocatable"):
            status = made["status"]
            status["allocatable"] = {**status["capacity"], **more}
            status["capacity"] = status["allocatable"]
        return made

    async def _csi_node(self, node: Json, drivers: list[Json]) -> Json:
        meta = node["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        content = {
            "metadata": {"name": meta["name"], "ownerReferences": [owner]},
            "spec": {"drivers": drivers},
        }
        return await self.send("POST", "/apis/storage.k8s.io/v1/csinodes", content)

    async def _create_resource_driver(self, operation: Json) -> None:
        nodes = (await self.send("GET", "/api/v1/nodes"))["items"]
        names = [each["metadata"]["name"] for each in nodes]
        wanted = [name for name in names if fnmatch.fnmatchcase(name, operation["nodes"])]
        slices = [
            slice_of(operation["driverName"], name, operation["maxClaimsPerNode"])
            for name in wanted
        ]
        path = "/apis/resource.k8s.io/v1/resourceslices"
        await self._send_all([self.send("POST", path, each) for each in slices])

    async def _allocate_claims(self, operation: Json) -> None:
        await allocate_claims(self.send, operation["namespace"])

    # ----- any object

    async def _create_namespaces(self, operation: Json) -> None:
        for index in range(operation["count"]):
            name = f"{operation['prefix']}-{index}"
            content = _namespace(name)
            if path := operation.get("namespaceTemplatePath"):
                content = rendered(self.workload.path(path), index, operation["count"])
                content["metadata"] = {**content.get("metadata", {}), "name": name}
                content["metadata"].pop("generateName", None)
            self._namespaces.add(name)
            await self.send("POST", "/api/v1/namespaces", content)

    async def _create_any(self, operation: Json) -> None:
        file, how_many = self.workload.path(operation["templatePath"]), operation["count"]
        namespace = operation.get("namespace", "default")
        made = [rendered(file, index, how_many) for index in range(how_many)]
        await self._ensure_namespace(namespace)
        await self._create(made[0], namespace)  # it learns the path for all
        await self._send_all([self._create(each, namespace) for each in made[1:]])

    async def _update_any(self, operation: Json) -> None:
        file, how_many = self.workload.path(operation["templatePath"]), operation["count"]
        namespace = operation.get("namespace", "default")
        pause_s = 1 / operation["updatePerSecond"] if operation.get("updatePerSecond") else 0.0
        for index in range(how_many):
            await self._update(rendered(file, index, how_many), namespace, operation)
            await asyncio.sleep(pause_s)

    async def _update(self, content: Json, namespace: str, operation: Json) -> None:
        where = content["metadata"].get("namespace", namespace)
        path = f"{await self._collection(content, where)}/{content['metadata']['name']}"
        parts = "/".join(["", *operation.get("subresources", ())])
        await self.send("PUT", path + parts, content)
        await self.send("PUT", f"{path}/status", content)

    # ----- pods

    async def _create_pods(self, operation: Json) -> None:
        namespace = operation.get("namespace") or f"namespace-{next(self._numbers)}"
        await self._ensure_namespace(namespace)
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
        created = await self._send_all(requests)
        return [(namespace, each["metadata"]["name"]) for each in created]

    async def _pod(self, operation: Json, namespace: str, index: int, how_many: int) -> Json:
        path = operation.get("podTemplatePath")
        file = self.workload.default_pod if path is None else self.workload.path(path)
        content = _default_pod() if file is None else rendered(file, index, how_many)
        if volume := operation.get("persistentVolumeTemplatePath"):
            claim = operation["persistentVolumeClaimTemplatePath"]
            templates = (self.workload.path(volume), self.workload.path(claim))
            content = await with_volume(self.send, content, templates, namespace, index)
        asked_at = time.monotonic()
        created = await self._create(content, namespace)
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
            await self._send_all([self._delete(key, AT_ONCE) for key in bound])
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
        return await self.send("DELETE", f"/api/v1/namespaces/{key[0]}/pods/{key[1]}", options)

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
            work = self._recreate if operation["mode"] == "recreate" else self._create_more
            task = asyncio.create_task(work(self.workload.path(path), operation))
            self._background.append(task)

    async def _create_more(self, file: Path, operation: Json) -> None:
        most, pause_s = operation.get("number", 0), operation["intervalMilliseconds"] / 1000
        for index in count(1):
            await asyncio.sleep(pause_s)
            await self._create(rendered(file), "churn")
            if index == most:
                return

    async def _recreate(self, file: Path, operation: Json) -> None:
        """So many objects come and go in turn, one change at a time."""
        pause_s = operation["intervalMilliseconds"] / 1000
        there: list[str | None] = [None] * operation.get("number", 1)
        for index in count():
            await asyncio.sleep(pause_s)
            content, place = rendered(file), index % len(there)
            name, there[place] = there[place], None
            if name is None:
                there[place] = (await self._create(content, "churn"))["metadata"]["name"]
            else:
                await self.send("DELETE", f"{await self._collection(content, 'churn')}/{name}")

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


def _namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


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


def _default_node() -> Json:
    """The node of Kubernetes' own benchmark where a list names none."""
    capacity = {"pods": "110", "cpu": "4", "memory": "32Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": "scheduler-perf-"},
        "status": {"capacity": capacity, "conditions": [{"type": "Ready", "status": "True"}]},
    }
