"""Devices other than GPUs and NICs that nobody holds, by name and node.

Machine descriptions count most devices: one array for each name. Every node has exactly one of each name with
`ONE_PER_NODE_PREFIX`: a port of the node, or the right to be the only pod of a kind there. Every node has
`MOST_COUNTED` of each name with `COUNTER_PREFIX`: these count members. There may be many names of both, and most nodes
hold none of them, so their holdings are kept by node.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from gantree.model.jobs import COUNTER_PREFIX, ONE_PER_NODE_PREFIX
from gantree.topology.fabric.fabric import Fabric, IntArray

MOST_COUNTED = 1 << 30
"""Counters of one name on one node: more than are ever held."""


class FreeDevices:
    """Free devices by name and node. `default_count` is what nodes have of names that no machine description counts."""

    def __init__(self, nodes: int, told: dict[str, IntArray]) -> None:
        self._nodes, self._told = nodes, told
        self._held_on_node: dict[int, Mapping[str, int]] = {}
        """Only names that no machine description counts. Mappings are replaced, never changed: copies share them."""

    @classmethod
    def of(cls, fabric: Fabric) -> "FreeDevices":
        """Return all devices of a fabric as free."""
        of_machine = [dict(machine.devices) for machine in fabric.machines]
        told = {}
        for name in sorted({name for devices in of_machine for name in devices}):
            counts = np.array([devices.get(name, 0) for devices in of_machine], dtype=np.int64)
            told[name] = counts[fabric.machine_index_of_node]
        return cls(len(fabric.nodes), told)

    def free(self, name: str) -> IntArray:
        """Return the free devices of a name, [node]."""
        told = self._told.get(name)
        if told is not None:
            return told
        free = np.full(self._nodes, default_count(name), dtype=np.int64)
        for node, held in self._held_on_node.items():
            free[node] -= held.get(name, 0)
        return free

    def has(self, node: int, devices: Iterable[tuple[str, int]]) -> bool:
        """Return whether (name, count) are free on a node, each name given once."""
        for name, count in devices:
            told = self._told.get(name)
            held = self._held_on_node.get(node, {}).get(name, 0) if told is None else 0
            if count > (default_count(name) if told is None else int(told[node])) - held:
                return False
        return True

    def add(self, name: str, node: int, count: int) -> None:
        """Add to the free devices of a node; a negative count takes them."""
        if name in self._told:
            self._told[name][node] += count
            return
        assert default_count(name), f"no machine has {name}"
        held = dict(self._held_on_node.get(node, {}))
        held[name] = held.get(name, 0) - count
        left = {each: number for each, number in held.items() if number}
        if left:
            self._held_on_node[node] = left
        else:
            self._held_on_node.pop(node, None)

    def copy(self) -> "FreeDevices":
        """The same counts, to be changed on their own."""
        twin = FreeDevices(self._nodes, {name: free.copy() for name, free in self._told.items()})
        twin._held_on_node = self._held_on_node.copy()
        return twin

    def of_node(self, node: int) -> dict[str, int]:
        """What is free on one node; of what no machine knows only what somebody holds some of (`free_of`)."""
        told = {name: int(free[node]) for name, free in self._told.items()}
        held = self._held_on_node.get(node)
        if not held:
            return told
        return {**told, **{name: default_count(name) - count for name, count in held.items()}}

    def held(self, name: str) -> Iterator[tuple[int, int]]:
        """Yield (node index, held) of a name that no machine description counts."""
        for node, held in self._held_on_node.items():
            if name in held:
                yield node, held[name]

    def names(self) -> Iterator[str]:
        """Yield the names of machine descriptions, and the held ones of others."""
        yield from self._told
        for held in self._held_on_node.values():
            yield from held


def default_count(name: str) -> int:
    """Return how many every node has of a name that no machine description counts."""
    return (
        MOST_COUNTED
        if name.startswith(COUNTER_PREFIX)
        else int(name.startswith(ONE_PER_NODE_PREFIX))
    )


def free_of(devices: Mapping[str, int], name: str) -> int:
    """Return how many of a name are free, given the answer of `FreeDevices.of_node`."""
    return devices.get(name, default_count(name))
