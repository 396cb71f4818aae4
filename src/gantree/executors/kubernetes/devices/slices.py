"""The devices that each node reaches, from ResourceSlices: its own, and those that several nodes reach.

A pool counts with the slices of its newest generation, as soon as all of them are there.
"""

from collections.abc import Mapping
from functools import lru_cache

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.device_objects import ResourceSlice
from gantree.executors.kubernetes.apiserver.objects import NodeSelector
from gantree.executors.kubernetes.devices.device import (
    Device,
    NodeDevices,
    counters_of,
    device_of,
    place_of,
)
from gantree.executors.kubernetes.pods.shapes import alternatives_of
from gantree.model.node_rules import rule_text, satisfies

RULES_KEPT = 4_096
Pool = tuple[str, str]
"""Driver and name."""


class Pools:
    """All slices, and the devices of nodes that they make."""

    def __init__(self) -> None:
        self._slices: dict[Key, ResourceSlice] = {}
        self._devices: dict[Key, tuple[Device, ...]] = {}
        self._of_pool: dict[Pool, dict[Key, None]] = {}
        self._of_node: dict[str, NodeDevices] = {}
        self._pools_of_node: dict[str, dict[Pool, None]] = {}
        self._nodes_of_pool: dict[Pool, dict[str, None]] = {}
        self._wide: dict[Pool, None] = {}
        """Pools with devices that several nodes reach, or that had some."""
        self._labels: dict[str, Mapping[str, str]] = {}

    def update(self, key: Key, after: ResourceSlice | None) -> list[str]:
        """A slice was added or has changed; None: it is gone. Gives the nodes whose devices may have changed."""
        before = self._slices.pop(key, None)
        self._devices.pop(key, None)
        if before is not None:
            self._of_pool[_pool(before)].pop(key, None)
        if after is not None:
            self._slices[key] = after
            self._of_pool.setdefault(_pool(after), {})[key] = None
            self._devices[key] = tuple(device_of(each, after.spec) for each in after.spec.devices)
            self._place(_pool(after), after, self._devices[key])
        pools = [_pool(each) for each in (before, after) if each is not None]
        nodes = list(dict.fromkeys(node for pool in pools for node in self.nodes_of(pool)))
        for node in nodes:
            self._of_node.pop(node, None)
        return nodes

    def _place(self, pool: Pool, told: ResourceSlice, devices: tuple[Device, ...]) -> None:
        for node in (told.spec.node_name, *(device.node for device in devices)):
            if node:
                self._pools_of_node.setdefault(node, {})[pool] = None
                self._nodes_of_pool.setdefault(pool, {})[node] = None
        if not all(device.node for device in devices):
            self._wide[pool] = None

    def update_node(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """A node is there with these labels; None: it is gone. Gives whether its devices may have changed."""
        before = self._labels.pop(name, None)
        if labels is not None:
            self._labels[name] = labels
        if before == labels or not self._wide:
            return False
        self._of_node.pop(name, None)
        return True

    def of_node(self, node: str) -> NodeDevices:
        """The devices that a node reaches, as far as their pools are whole."""
        found = self._of_node.get(node)
        if found is None:
            found = self._of_node[node] = self._devices_of(node)
        return found

    def _devices_of(self, node: str) -> NodeDevices:
        pools = {**self._pools_of_node.get(node, {}), **self._wide}
        keys = [key for pool in sorted(pools) for key in self._whole(pool)]
        counters = {
            (*_pool(self._slices[key]), shared.name): counters_of(shared)
            for key in keys
            for shared in self._slices[key].spec.shared_counters
        }
        devices = [device for key in keys for device in self._devices[key]]
        there = [device for device in devices if self._reaches(node, device)]
        there.sort(key=lambda device: (place_of(device), device.key))
        gpus = sorted((device for device in there if device.is_gpu), key=place_of)
        reached = set(map(id, there))
        elsewhere = (each for each in devices if each.consumes and id(each) not in reached)
        return NodeDevices(
            tuple(there),
            tuple(device.key for device in gpus),
            tuple(counters.items()),
            tuple(elsewhere),
        )

    def _reaches(self, node: str, device: Device) -> bool:
        if device.node or device.selector is None:
            return device.node in ("", node)
        return satisfies(node, self._labels.get(node, {}), _rule(device.selector))

    def has(self, pool: Pool) -> bool:
        """Whether there are slices of a pool."""
        return bool(self._of_pool.get(pool))

    def nodes(self) -> list[str]:
        """Nodes that may reach devices, or did."""
        return list({**self._pools_of_node, **(self._labels if self._wide else {})})

    def nodes_of(self, pool: Pool) -> list[str]:
        """Nodes that may reach devices of a pool, or did."""
        wide = self._labels if pool in self._wide else {}
        return list({**self._nodes_of_pool.get(pool, {}), **wide})

    def _whole(self, pool: Pool) -> list[Key]:
        """The slices of the newest generation of a pool; none while some are missing."""
        there = {key: self._slices[key].spec.pool for key in sorted(self._of_pool.get(pool, {}))}
        newest = max((each.generation for each in there.values()), default=0)
        current = [key for key, each in there.items() if each.generation == newest]
        is_whole = current and len(current) >= there[current[0]].resource_slice_count
        return current if is_whole else []


@lru_cache(maxsize=RULES_KEPT)
def _rule(selector: NodeSelector) -> str:
    return rule_text(alternatives_of(selector))


def _pool(told: ResourceSlice) -> Pool:
    return told.spec.driver, told.spec.pool.name
