"""The GPUs that slices list, as a Node object would: their number, model, memory and wiring."""

from collections.abc import Iterator, Sequence

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Node, Wiring
from gantree.executors.kubernetes.devices.device import PCIE_ROOT, Device, NodeDevices, numa_of
from gantree.topology.discovery.listings.kubernetes_nodes import quantity
from gantree.topology.hardware.link_classes import SELF


def with_devices(node: Node, devices: NodeDevices) -> Node:
    """Return a Node object with the GPUs that its slices list: their number, model and wiring.

    What its device plugins list stays as it is: a pod that asks a plugin for GPUs must not go where only slices have
    them, nor a claim where only a plugin has.
    """
    if not devices.gpus:
        return node
    first = next(device for device in devices.devices if device.key == devices.gpus[0])
    labels = {**dict(_labels(first)), **node.metadata.labels}
    return msgspec.structs.replace(
        node,
        wiring=wiring_of(devices),
        metadata=msgspec.structs.replace(node.metadata, labels=labels),
    )


def wiring_of(there: NodeDevices) -> Wiring:
    """How many GPUs a node has, and how they hang together by NUMA node and PCIe root, where all of them tell.

    Of NVLinks attributes say nothing: a path is told as PCIe goes, which is no worse than one that is not known.
    """
    of_key = {device.key: device for device in there.devices}
    gpus = [of_key[key] for key in there.gpus]
    numa = tuple(numa_of(gpu) for gpu in gpus)
    roots = [gpu.attribute(PCIE_ROOT) for gpu in gpus]
    if None in roots:
        return Wiring(len(gpus), () if None in numa else numa)
    sides = range(len(gpus))
    links = tuple(tuple(_path(a, b, roots, numa) for b in sides) for a in sides)
    return Wiring(len(gpus), () if None in numa else numa, links)


def _path(a: int, b: int, roots: Sequence[object], numa: Sequence[int | None]) -> str:
    if a == b:
        return SELF
    if roots[a] == roots[b]:
        return "PXB"
    return "NODE" if numa[a] is not None and numa[a] == numa[b] else "SYS"


def _labels(gpu: Device) -> Iterator[tuple[str, str]]:
    """What GPU Feature Discovery would say of a GPU: its product, and its memory in MiB."""
    for name in ("productName", "model"):
        product = gpu.attribute(f"{gpu.key[0]}/{name}")
        if isinstance(product, str):
            yield "nvidia.com/gpu.product", product.replace(" ", "-")
            break
    memory = dict(gpu.facts.capacity).get(f"{gpu.key[0]}/memory")
    amount = quantity(memory) if memory else None
    if amount:
        yield "nvidia.com/gpu.memory", str(int(amount / 2**20))
