"""The devices of each node from ResourceSlices: their attributes, which are GPUs, and their order.

A pool counts with the slices of its newest generation, as soon as all of them are there. Devices of one node only are
read: those that many nodes reach (`nodeSelector`, `allNodes`), and those that are bound by conditions, are left out.

GPUs are numbered by where they sit, as a machine prints them: NUMA node, PCIe root, address on the bus, index, name.
Position p of the core is the p-th of these. Partitions of a GPU are devices of their own, but no GPUs.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.device_objects import (
    Attribute,
    CounterSet,
    DeviceTaint,
    ResourceSlice,
    SliceDevice,
)
from gantree.executors.kubernetes.apiserver.objects import Node, Wiring
from gantree.executors.kubernetes.pods.device_rules import Facts, Value, Version
from gantree.topology.discovery.listings.kubernetes_nodes import quantity
from gantree.topology.hardware.link_classes import SELF

STANDARD = "resource.kubernetes.io/"
PCIE_ROOT, BUS_ID = f"{STANDARD}pcieRoot", f"{STANDARD}pciBusID"
WHOLE_GPUS = frozenset({"gpu", "amdgpu"})
"""What drivers call whole GPUs in the attribute `type`, where they have it."""
_NUMA = ("numaNode", "numa", "numaNodeID")
_DIGITS = re.compile(r"([0-9]+)")

DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
SetKey = tuple[str, str, str]
"""Driver, pool and name of a set of counters."""
Counters = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device of one node, the same as long as its slice is. consumes: what it uses of sets of counters."""

    key: DeviceKey
    facts: Facts
    consumes: tuple[tuple[SetKey, Counters], ...] = ()
    taints: tuple[DeviceTaint, ...] = ()

    @property
    def is_gpu(self) -> bool:
        """Whether it is a whole GPU."""
        selector = self.attribute(f"{self.key[0]}/type")
        return self.key[0].startswith("gpu.") and (selector is None or selector in WHOLE_GPUS)

    def attribute(self, name: str) -> Value | Version | None:
        """Return an attribute by its qualified name; None if it is not set."""
        return next((value for key, value in self.facts.attributes if key == name), None)

    @property
    def is_barred(self) -> bool:
        """Whether a taint keeps claims away that do not tolerate it."""
        return any(taint.effect in ("NoSchedule", "NoExecute") for taint in self.taints)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NodeDevices:
    """All devices of a node, its GPUs in the order of their positions, and how much each set of counters has.

    It is the same object as long as the node's slices are.
    """

    devices: tuple[Device, ...] = ()
    gpus: tuple[DeviceKey, ...] = ()
    counters: tuple[tuple[SetKey, Counters], ...] = ()


NONE = NodeDevices()


class Pools:
    """All slices, and the devices of nodes that they make."""

    def __init__(self) -> None:
        self._slices: dict[Key, ResourceSlice] = {}
        self._of_pool: dict[tuple[str, str], dict[Key, None]] = {}
        self._of_node: dict[str, NodeDevices] = {}
        self._pools_of_node: dict[str, dict[tuple[str, str], None]] = {}
        self._nodes_of_pool: dict[tuple[str, str], dict[str, None]] = {}

    def update(self, key: Key, after: ResourceSlice | None) -> list[str]:
        """A slice was added or has changed; None: it is gone. Gives the nodes whose devices may have changed."""
        before = self._slices.pop(key, None)
        if before is not None:
            self._of_pool[_pool(before)].pop(key, None)
        if after is not None:
            self._slices[key] = after
            self._of_pool.setdefault(_pool(after), {})[key] = None
            for node in _nodes(after):
                self._pools_of_node.setdefault(node, {})[_pool(after)] = None
                self._nodes_of_pool.setdefault(_pool(after), {})[node] = None
        pools = [_pool(each) for each in (before, after) if each is not None]
        nodes = dict.fromkeys(n for pool in pools for n in self._nodes_of_pool.get(pool, {}))
        for node in nodes:
            self._of_node.pop(node, None)
        return list(nodes)

    def of_node(self, node: str) -> NodeDevices:
        """The devices of a node, as far as their pools are whole."""
        found = self._of_node.get(node)
        if found is None:
            pools = self._pools_of_node.get(node, {})
            slices = [each for pool in sorted(pools) for each in self._whole(pool)]
            found = self._of_node[node] = devices_of(node, slices)
        return found

    def has(self, pool: tuple[str, str]) -> bool:
        """Whether there are slices of a pool."""
        return bool(self._of_pool.get(pool))

    def nodes(self) -> list[str]:
        """Nodes that have slices, or had some."""
        return list(self._pools_of_node)

    def _whole(self, pool: tuple[str, str]) -> list[ResourceSlice]:
        """The slices of the newest generation of a pool; none while some are missing."""
        there = [self._slices[key] for key in sorted(self._of_pool.get(pool, {}))]
        newest = max((each.spec.pool.generation for each in there), default=0)
        current = [each for each in there if each.spec.pool.generation == newest]
        is_whole = current and len(current) >= current[0].spec.pool.resource_slice_count
        return current if is_whole else []


def devices_of(node: str, slices: Iterable[ResourceSlice]) -> NodeDevices:
    """The devices of a node in slices of pools that are whole."""
    found: list[Device] = []
    counters: dict[SetKey, Counters] = {}
    for each in slices:
        driver, pool = _pool(each)
        for shared in each.spec.shared_counters:
            counters[driver, pool, shared.name] = _counters(shared)
        found += [
            _device(driver, pool, told)
            for told in each.spec.devices
            if (told.node_name or each.spec.node_name) == node and not told.binding_conditions
        ]
    gpus = sorted((device for device in found if device.is_gpu), key=_place)
    return NodeDevices(
        tuple(sorted(found, key=lambda device: (_place(device), device.key))),
        tuple(device.key for device in gpus),
        tuple(counters.items()),
    )


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


def qualified(name: str, driver: str) -> str:
    """A name of an attribute or capacity with its domain: the driver's where it has none."""
    return name if "/" in name else f"{driver}/{name}"


def numa_of(device: Device) -> int | None:
    """Return the NUMA node of a device; None if the driver does not publish it."""
    for name in _NUMA:
        for domain in (device.key[0] + "/", STANDARD):
            value = device.attribute(domain + name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


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


def _device(driver: str, pool: str, told: SliceDevice) -> Device:
    attributes = (
        (qualified(name, driver), _value(value)) for name, value in sorted(told.attributes.items())
    )
    capacity = (
        (qualified(name, driver), str(amount.value))
        for name, amount in sorted(told.capacity.items())
    )
    facts = Facts(
        driver,
        tuple((name, value) for name, value in attributes if value is not None),
        tuple(capacity),
    )
    consumes = tuple(
        ((driver, pool, each.counter_set), _counters(each)) for each in told.consumes_counters
    )
    return Device((driver, pool, told.name), facts, consumes, told.taints)


def _value(told: Attribute) -> Value | Version | None:
    if told.version is not None:
        return Version(told.version)
    return next((v for v in (told.bool_, told.int_, told.string) if v is not None), None)


def _counters(told: CounterSet) -> Counters:
    return tuple(
        (name, quantity(str(amount.value)) or 0.0) for name, amount in sorted(told.counters.items())
    )


def _place(device: Device) -> tuple[object, ...]:
    """Return the sort key of a device by position; unknown values sort first."""
    index = device.attribute(f"{device.key[0]}/index")
    numa = numa_of(device)
    return (
        -1 if numa is None else numa,
        str(device.attribute(PCIE_ROOT) or ""),
        str(device.attribute(BUS_ID) or ""),
        index if isinstance(index, int) else -1,
        _words(device.key[2]),
    )


def _words(name: str) -> list[tuple[int, str]]:
    """A name in an order in which numbers in it count as numbers."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _pool(told: ResourceSlice) -> tuple[str, str]:
    return told.spec.driver, told.spec.pool.name


def _nodes(told: ResourceSlice) -> Iterator[str]:
    if told.spec.node_name:
        yield told.spec.node_name
    yield from (device.node_name for device in told.spec.devices if device.node_name)
