"""Devices other than GPUs and NICs that nobody holds, by name and node.

Of most, machines say how many they have. Of those whose names begin with `SOLE` every node has exactly one, without
anybody saying so: a port of the node, or the right to be the only one of its kind there. They are counted from the
moment at which somebody asks for one.
"""

from collections.abc import Mapping

import numpy as np

from gantree.model.jobs import SOLE
from gantree.topology.fabric import Fabric, IntArray


class FreeDevices(dict[str, IntArray]):
    """free[name][node]; of a name that no machine knows every node has none, or one where it is a sole one."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = nodes

    @classmethod
    def of(cls, fabric: Fabric) -> "FreeDevices":
        """All that the machines of a fabric have."""
        free = cls(len(fabric.nodes))
        of_machine = [dict(machine.devices) for machine in fabric.machines]
        for name in sorted({name for devices in of_machine for name in devices}):
            counts = np.array([devices.get(name, 0) for devices in of_machine], dtype=np.int64)
            free[name] = counts[fabric.machine_index_of_node]
        return free

    def __missing__(self, name: str) -> IntArray:
        """Kept from now on where it is a sole one."""
        found = np.full(self._nodes, int(name.startswith(SOLE)), dtype=np.int64)
        if name.startswith(SOLE):
            self[name] = found
        return found

    def copy(self) -> "FreeDevices":
        """The same counts, to be changed on their own."""
        twin = FreeDevices(self._nodes)
        for name, free in self.items():
            twin[name] = free.copy()
        return twin

    def of_node(self, node: int) -> dict[str, int]:
        """What is free on one node."""
        return {name: int(free[node]) for name, free in self.items()}


def free_of(devices: Mapping[str, int], name: str) -> int:
    """How many of a name are free by what `FreeDevices.of_node` says."""
    return devices.get(name, int(name.startswith(SOLE)))
