"""What claims cost a scheduler: seconds of CPU for devices, wishes, pods that are read and pods that are planned.

No server: slices, classes, claims and pods as they are decoded, handed to the allocator of `gantree kubernetes`.

    PYTHONPATH=tests python benchmarks/claims.py --nodes 5000 --pods 1000
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from gantree.executors.kubernetes.apiserver.device_objects import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from gantree.executors.kubernetes.apiserver.objects import Metadata, Node, Pod
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.writes.writes import Binding
from support.devices import GPU, NIC, gpu, nic, request

T = TypeVar("T")
LARGE = f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0'
ROOT = "resource.kubernetes.io/pcieRoot"
WISHES: dict[str, dict[str, Any]] = {
    "one GPU": {"requests": [request("gpu", "gpu")]},
    "a GPU and a NIC at one root": {
        "requests": [request("gpu", "gpu"), request("nic", "nic")],
        "constraints": [{"matchAttribute": ROOT}],
    },
    "a GPU by an expression": {"requests": [request("gpu", "gpu", selectors=[LARGE])]},
}


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1000, help="of each wish")
    told = parser.parse_args()
    allocator = Allocator()
    for name, driver in (("gpu", GPU), ("nic", NIC)):
        selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
        body = {"metadata": {"name": name}, "spec": {"selectors": selectors}}
        allocator.update_class(("", name), typed(body, DeviceClass))
    slices = [each for number in range(told.nodes) for each in slices_of(f"n{number}")]
    with measured(f"{16 * told.nodes} devices are seen"):
        for each in slices:
            allocator.update_slice(("", each.metadata.name), each)
    nodes = [Node(Metadata(name=f"n{number}")) for number in range(told.nodes)]
    for label, devices in WISHES.items():
        run(allocator, label, devices, nodes, told.pods)


def run(
    allocator: Allocator, label: str, devices: dict[str, Any], nodes: list[Node], count: int
) -> None:
    """One wish: first asked by one pod, counted on all nodes, then asked by many."""
    pods = [claimant(allocator, f"{label}-{number}", devices) for number in range(count)]
    with measured(f"{label}: a first pod is read"):
        allocator.read(pods[0])
    with measured(f"{label}: counted on all nodes"):
        for node in nodes:
            allocator.equipped(node)
    with measured(f"{label}: {count} pods are read"):
        pods = [allocator.read(pod) for pod in pods]
    with measured(f"{label}: {count} pods are given devices"):
        for number, pod in enumerate(pods):
            meta, where = pod.metadata, f"n{number % len(nodes)}"
            allocator.plan([Binding("d", meta.name, meta.uid, where, {})], {meta.uid: pod})
    with measured(f"{label}: what is taken is told"):
        list(allocator.taken.changes([node.metadata.name for node in nodes], 0.0, 1))


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Print the CPU seconds of a block."""
    start = time.process_time()
    yield
    print(f"{time.process_time() - start:8.3f} s  {what}", flush=True)


def slices_of(node: str) -> Iterator[ResourceSlice]:
    """8 GPUs and 8 NICs, a pair at each PCIe root."""
    roots = [f"pci0000:{number:02x}" for number in range(8)]
    gpus = [gpu(n, root, numa=n // 4, uuid=f"{node}-{n}") for n, root in enumerate(roots)]
    for driver, devices in ((GPU, gpus), (NIC, [nic(n, root) for n, root in enumerate(roots)])):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        yield typed({"metadata": {"name": f"{node}-{driver}"}, "spec": spec}, ResourceSlice)


def claimant(allocator: Allocator, name: str, devices: dict[str, Any]) -> Pod:
    """A pod whose claim was made of a template, and seen."""
    owner = {"kind": "Pod", "name": name, "uid": name}
    meta = {"name": name, "namespace": "d", "uid": f"claim-{name}", "ownerReferences": [owner]}
    claim = typed({"metadata": meta, "spec": {"devices": devices}}, ResourceClaim)
    allocator.update_claim(("d", name), claim)
    wanted = [{"name": "t", "resourceClaimTemplateName": "template"}]
    made = [{"name": "t", "resourceClaimName": name}]
    body = {
        "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"resourceClaims": wanted},
        "status": {"resourceClaimStatuses": made},
    }
    return typed(body, Pod)


def typed(body: dict[str, Any], kind: type[T]) -> T:
    """An object as the API tells it."""
    return msgspec.json.decode(json.dumps(body), type=kind)


if __name__ == "__main__":
    main()
