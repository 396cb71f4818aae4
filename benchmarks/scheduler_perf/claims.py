"""Dynamic resource allocation in a list: a driver that publishes devices, and claims that are allocated.

A driver has one pool a node, with one slice; devices differ in their NUMA node alone.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from scheduler_perf.templates import CannotRun

Json = dict[str, Any]
Send = Callable[..., Awaitable[Json]]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def slice_of(driver: str, node: str, devices: int) -> Json:
    """The slice of a node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 0, "resourceSliceCount": 1},
            "devices": [_device(number) for number in range(devices)],
        },
    }


def _device(number: int) -> Json:
    return {
        "name": f"instance-{number}",
        "attributes": {
            "model": {"string": "A100"},
            "family": {"string": "GPU"},
            "driverVersion": {"version": "1.2.3"},
            "dra.example.com/numa": {"int": number},
        },
        "capacity": {"memory": {"value": "1Gi"}},
    }


async def allocate_claims(send: Send, namespace: str) -> None:
    """Allocate each claim of a namespace, one device each, in the place of a scheduler. Raises CannotRun."""
    slices = (await send("GET", SLICES))["items"]
    free = _devices(slices)
    for claim in (await send("GET", CLAIMS.format(namespace)))["items"]:
        if claim.get("status", {}).get("allocation"):
            continue
        driver, node, device = next(free)
        (request,) = claim["spec"]["devices"]["requests"]
        result = {"request": request["name"], "driver": driver, "pool": node, "device": device}
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": _only(node)}
        }
        path = f"{CLAIMS.format(namespace)}/{claim['metadata']['name']}/status"
        await send("PUT", path, claim)


def _devices(slices: list[Json]) -> Iterator[tuple[str, str, str]]:
    for each in slices:
        spec = each["spec"]
        if "nodeName" not in spec:
            raise CannotRun(
                "claims are to be allocated beforehand, of devices that several nodes reach"
            )
        for device in spec.get("devices", ()):
            yield spec["driver"], spec["nodeName"], device["name"]


def _only(node: str) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeSelectorTerms": [term]}
