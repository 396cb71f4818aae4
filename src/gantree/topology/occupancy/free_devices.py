"""Devices other than GPUs and NICs that nobody holds, by name and node.

Of most, machines say how many they have: an array each. Of those whose names begin with `SOLE` every node has exactly
one, without anybody saying so: a port of the node, or the right to be the only one of its kind there. Of those whose
names begin with `KIN` every node has `ROOM_FOR_KIN`: they only count who is there. There may be many names of both, of
which most nodes hold none, so what is held of them is kept by node.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from gantree.model.jobs import KIN, SOLE
from gantree.topology.fabric.fabric import Fabric, IntArray

ROOM_FOR_KIN = 1 << 30
"""Of one kind on one node: more than there will ever be."""


class FreeDevices:
    """What is free; of a name that no machine knows every node has as many as `usual` says."""

    def __init__(self, nodes: int, told: dict[str, IntArray]) -> None:
        self._nodes, self._told = nodes, told
        self._held_on_node: dict[int, Mapping[str, int]] = {}
        """What no machine knows alone. A mapping is never changed, only replaced: copies share them."""

    @classmethod
    def of(cls, fabric: Fabric) -> "FreeDevices":
        """All that the machines of a fabric have."""
        of_machine = [dict(machine.devices) for machine in fabric.machines]
        told = {}
        for name in sorted({name for devices in of_machine for name in devices}):
            counts = np.array([devices.get(name, 0) for devices in of_machine], dtype=np.int64)
            told[name] = counts[fabric.machine_index_of_node]
        return cls(len(fabric.nodes), told)

    def free(self, name: str) -> IntArray:
        """How many of a name are free, by node."""
        told = self._told.get(name)
        if told is not None:
            return told
        free = np.full(self._nodes, usual(name), dtype=np.int64)
        for node, held in self._held_on_node.items():
            free[node] -= held.get(name, 0)
        return free

    def has(self, node: int, devices: Iterable[tuple[str, int]]) -> bool:
        """Whether so many of each name, each named once, are free on a node."""
        for name, count in devices:
            told = self._told.get(name)
            held = self._held_on_node.get(node, {}).get(name, 0) if told is None else 0
            if count > (usual(name) if told is None else int(told[node])) - held:
                return False
        return True

    def add(self, name: str, node: int, count: int) -> None:
        """So many more are free on a node; fewer, where that is below zero."""
        if name in self._told:
            self._told[name][node] += count
            return
        assert usual(name), f"no machine has {name}"
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
        return {**told, **{name: usual(name) - count for name, count in held.items()}}

    def held(self, name: str) -> Iterator[tuple[int, int]]:
        """Nodes, by index, that hold some of what no machine knows, and how many."""
        for node, held in self._held_on_node.items():
            if name in held:
                yield node, held[name]

    def names(self) -> Iterator[str]:
        """All that machines have, and what is held of the others."""
        yield from self._told
        for held in self._held_on_node.values():
            yield from held


def usual(name: str) -> int:
    """How many every node has of what no machine knows."""
    return ROOM_FOR_KIN if name.startswith(KIN) else int(name.startswith(SOLE))


def free_of(devices: Mapping[str, int], name: str) -> int:
    """How many of a name are free by what `FreeDevices.of_node` says."""
    return devices.get(name, usual(name))
