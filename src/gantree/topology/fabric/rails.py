"""Rails: the NICs of the same number on every node, and their bandwidth.

A rail is no tier: a node is on all its rails at once. Which rail a NIC is on is its machine's; which nodes share a
rail's first switch is the fabric's: those of one domain of the narrowest tier outside the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gantree.model.cluster import Machine
from gantree.topology.fabric.fabric import Fabric, IntArray

NO_RAIL = -1
"""Rail of a NIC that is on none (storage)."""


def rail_of_nic(machine: Machine) -> tuple[int, ...]:
    """Return the rail of each NIC of a machine, NO_RAIL for one that is on none."""
    return tuple(NO_RAIL if nic.rail is None else nic.rail for nic in machine.nics)


@dataclass(frozen=True, slots=True, eq=False)
class Rails:
    """The rails of a fabric, numbered as its machines number them.

    rails are the numbers in use, rising; nics_of_rail[machine][rail] are positions in the machine's list of NICs;
    leaf_of_node[node] numbers the domain of the narrowest tier outside the node (the fabric's one domain where the
    site has none).
    """

    rails: tuple[int, ...]
    nics_of_rail: tuple[Mapping[int, tuple[int, ...]], ...]
    leaf_of_node: IntArray
    machine_of_node: IntArray

    def nodes_sharing(self, rail: int, node: int) -> IntArray:
        """Indices of the nodes with a NIC on a rail behind the same leaf as a node, itself among them, rising."""
        on_rail = np.array([rail in nics for nics in self.nics_of_rail], dtype=np.bool_)
        beside = self.leaf_of_node == self.leaf_of_node[node]
        return np.flatnonzero(beside & on_rail[self.machine_of_node]).astype(np.int64)


def rails_of(fabric: Fabric) -> Rails:
    """Return the rails of a fabric."""
    nics_of_rail = tuple(_nics_of_rail(machine) for machine in fabric.machines)
    return Rails(
        rails=tuple(sorted({rail for of_machine in nics_of_rail for rail in of_machine})),
        nics_of_rail=nics_of_rail,
        leaf_of_node=fabric.domain_of_node[fabric.node_tier - 1],
        machine_of_node=fabric.machine_index_of_node,
    )


def _nics_of_rail(machine: Machine) -> Mapping[int, tuple[int, ...]]:
    nics: dict[int, tuple[int, ...]] = {}
    for position, rail in enumerate(rail_of_nic(machine)):
        if rail != NO_RAIL:
            nics[rail] = (*nics.get(rail, ()), position)
    return nics
