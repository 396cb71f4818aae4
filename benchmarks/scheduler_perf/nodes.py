"""Nodes as Kubernetes' own benchmark makes them: with names and hostnames, labels in turn, limits of volumes."""

from collections.abc import Iterator

from scheduler_perf.lists import Workload
from scheduler_perf.server import Server
from scheduler_perf.templates import Json, rendered


async def create_nodes(
    server: Server, workload: Workload, operation: Json, numbers: Iterator[int]
) -> None:
    """The nodes of an operation; numbers make their names unique."""
    made = [_node(workload, operation, index, numbers) for index in range(operation["count"])]
    created = await server.send_all([server.send("POST", "/api/v1/nodes", each) for each in made])
    limits = operation.get("nodeAllocatableStrategy", {}).get("csiNodeAllocatable")
    if limits:
        drivers = [
            {"name": driver, "nodeID": driver, "allocatable": limit}
            for driver, limit in limits.items()
        ]
        await server.send_all([_csi_node(server, each, drivers) for each in created])


def _node(workload: Workload, operation: Json, index: int, numbers: Iterator[int]) -> Json:
    path = operation.get("nodeTemplatePath")
    made = rendered(workload.path(path), index, operation["count"]) if path else _default_node()
    meta = made["metadata"]
    if "name" not in meta:
        meta["name"] = f"{meta.pop('generateName')}{next(numbers):05d}"
    meta.setdefault("labels", {})["kubernetes.io/hostname"] = meta["name"]
    if labels := operation.get("labelNodePrepareStrategy"):
        values = labels["labelValues"]
        meta["labels"][labels["labelKey"]] = values[index % len(values)]
    if more := operation.get("nodeAllocatableStrategy", {}).get("nodeAllocatable"):
        status = made["status"]
        status["allocatable"] = status["capacity"] = {**status["capacity"], **more}
    return made


def _default_node() -> Json:
    """Where a list names no template."""
    capacity = {"pods": "110", "cpu": "4", "memory": "32Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": "scheduler-perf-"},
        "status": {"capacity": capacity, "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def _csi_node(server: Server, node: Json, drivers: list[Json]) -> Json:
    meta = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
    content = {
        "metadata": {"name": meta["name"], "ownerReferences": [owner]},
        "spec": {"drivers": drivers},
    }
    return await server.send("POST", "/apis/storage.k8s.io/v1/csinodes", content)
