"""The devices of each node from ResourceSlices.

A pool counts with the slices of its newest generation, as soon as all of them are there. Devices of one node only are
read: those that many nodes reach (`nodeSelector`, `allNodes`), and those that are bound by conditions, are left out.
"""

from collections.abc import Iterable, Iterator

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.device_objects import ResourceSlice
from gantree.executors.kubernetes.devices.device import (
    Counters,
    Device,
    NodeDevices,
    SetKey,
    counters_of,
    device_of,
    place_of,
)


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
            counters[driver, pool, shared.name] = counters_of(shared)
        found += [
            device_of(driver, pool, told)
            for told in each.spec.devices
            if (told.node_name or each.spec.node_name) == node and not told.binding_conditions
        ]
    gpus = sorted((device for device in found if device.is_gpu), key=place_of)
    return NodeDevices(
        tuple(sorted(found, key=lambda device: (place_of(device), device.key))),
        tuple(device.key for device in gpus),
        tuple(counters.items()),
    )


def _pool(told: ResourceSlice) -> tuple[str, str]:
    return told.spec.driver, told.spec.pool.name


def _nodes(told: ResourceSlice) -> Iterator[str]:
    if told.spec.node_name:
        yield told.spec.node_name
    yield from (device.node_name for device in told.spec.devices if device.node_name)
