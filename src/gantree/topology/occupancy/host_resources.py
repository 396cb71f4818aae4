"""Free resources of each node beside GPUs: CPUs, memory, NICs, NUMA amounts, other devices.

CPUs and memory are whole numbers (millionths, KiB), so that taking and giving back never drifts. What most nodes do not
have is kept by node: broken NICs, and what is held on NUMA nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.numa import NumaUse
from gantree.topology.occupancy.free_devices import FreeDevices
from gantree.topology.occupancy.node_room import MachineBook, memory_KiB, microcpus

UNCOUNTED = 1 << 40
"""Free amount of a resource that the site did not count; no member asks for as much."""


class HostResources:
    """Arrays by node, of what is free; a broken NIC may be free by its mask, but nics_of_node does not count it.

    nic_mask_of_node[node] has a bit per NIC of the machine that nobody holds, broken_nic_mask_of_node an entry for each
    node with broken NICs, numa_of_node one for each node on whose NUMA nodes something was ever held.
    """

    def __init__(self, fabric: Fabric) -> None:
        """All resources of the fabric, every NIC whole."""
        machines = [fabric.machine_of_node(node) for node in range(len(fabric.nodes))]
        self.nic_mask_of_node: list[int] = [(1 << len(m.nics)) - 1 for m in machines]
        self.broken_nic_mask_of_node: dict[int, int] = {}
        self.nics_of_node: IntArray = _array(
            [len(m.nics) if m.nics_counted else UNCOUNTED for m in machines]
        )
        self.microcpus_of_node: IntArray = _array(
            [UNCOUNTED if m.cpus is None else microcpus(m.cpus) for m in machines]
        )
        self.memory_KiB_of_node: IntArray = _array(
            [UNCOUNTED if m.memory_GiB is None else memory_KiB(m.memory_GiB) for m in machines]
        )
        self.numa_of_node: dict[int, NumaUse] = {}
        self.devices = FreeDevices.of(fabric)
        books = [MachineBook(machine) for machine in fabric.machines]
        self.book_of_node: Sequence[MachineBook] = [
            books[number] for number in fabric.machine_index_of_node.tolist()
        ]
        self._hold_views()

    def numa_use(self, node: int) -> NumaUse:
        """What is held on the NUMA nodes of a node."""
        return self.numa_of_node.get(node) or self.book_of_node[node].no_use

    def sound_nic_mask(self, node: int) -> int:
        """NICs of a node that nobody holds and that are not broken, as a mask in the machine's order."""
        return self.nic_mask_of_node[node] & ~self.broken_nic_mask_of_node.get(node, 0)

    def sound_nics(self, node: int) -> tuple[str, ...]:
        """The same by name."""
        return self.book_of_node[node].nic_masks.names(self.sound_nic_mask(node))

    def has(self, node: int, member: MemberPlacement) -> bool:
        """Whether all that a member takes beside GPUs is free on its node."""
        nics = member.nics
        if nics and self.book_of_node[node].nic_masks[nics] & ~self.nic_mask_of_node[node]:
            return False
        if (member.cpus and microcpus(member.cpus) > self.microcpus_view[node]) or (
            member.memory_GiB and memory_KiB(member.memory_GiB) > self.memory_KiB_view[node]
        ):
            return False
        if not self.devices.has(node, member.devices):
            return False
        return not (member.numa and self._numa_step(node, member, +1)[0])

    def add(self, node: int, member: MemberPlacement, sign: int) -> None:
        """Count what a member takes (-1) or gives back (+1) beside GPUs."""
        for name, count in member.devices:
            self.devices.add(name, node, sign * count)
        if member.cpus:
            self.microcpus_view[node] += sign * microcpus(member.cpus)
        if member.memory_GiB:
            self.memory_KiB_view[node] += sign * memory_KiB(member.memory_GiB)
        if member.nics:
            held = self.book_of_node[node].nic_masks[member.nics]
            counted = held & ~self.broken_nic_mask_of_node.get(node, 0)
            self.nic_mask_of_node[node] ^= held
            self._nics_view[node] += sign * counted.bit_count()
        if member.numa:
            self.numa_of_node[node] = self._numa_step(node, member, -sign)[1]

    def set_broken_nics(self, broken_nic_mask_of_node: Mapping[int, int]) -> None:
        """Count exactly these NICs as broken, while nobody holds any."""
        for node, mask in self.broken_nic_mask_of_node.items():
            self.nics_of_node[node] += mask.bit_count()
        self.broken_nic_mask_of_node = dict(broken_nic_mask_of_node)
        for node, mask in self.broken_nic_mask_of_node.items():
            self.nics_of_node[node] -= mask.bit_count()

    def copy(self) -> Self:
        """The same, to be changed on its own."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.nic_mask_of_node = self.nic_mask_of_node.copy()
        twin.broken_nic_mask_of_node = self.broken_nic_mask_of_node.copy()
        twin.nics_of_node = self.nics_of_node.copy()
        twin.microcpus_of_node = self.microcpus_of_node.copy()
        twin.memory_KiB_of_node = self.memory_KiB_of_node.copy()
        twin.numa_of_node = self.numa_of_node.copy()
        twin.devices = self.devices.copy()
        twin._hold_views()
        return twin

    def _hold_views(self) -> None:
        """Reading one number of a view is quicker than of an array."""
        self._nics_view = self.nics_of_node.data
        self.microcpus_view = self.microcpus_of_node.data
        self.memory_KiB_view = self.memory_KiB_of_node.data

    def _numa_step(self, node: int, member: MemberPlacement, sign: int) -> tuple[str, NumaUse]:
        """As `NumaSteps`: what follows if a member takes (+1) or gives back (-1) what it holds on NUMA nodes."""
        return self.book_of_node[node].numa_steps[self.numa_use(node), member.numa, sign]


def _array(numbers: Sequence[int]) -> IntArray:
    return np.array(numbers, dtype=np.int64)
