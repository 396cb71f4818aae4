"""Free GPUs by node, and the most slots that they make in one domain: a bound without a search or a shape index."""

from collections.abc import Iterable

import numpy as np

from gantree.core.queue.slot_demands import SlotDemandTable
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy


class NodeGpus:
    """Whole GPUs by node. Some may be counted twice, so a node counts at most the GPUs that it has."""

    def __init__(self, fabric: Fabric, gpus_of_node: IntArray) -> None:
        self._fabric = fabric
        self._gpus: IntArray = np.minimum(gpus_of_node, fabric.gpus_of_node)

    def most_slots(self, demands: SlotDemandTable) -> IntArray:
        """The most slots in one domain for each of `SlotDemandTable.shape_tiers`; 0 for those that are not bounded.

        A tier inside the node counts as the tier of nodes.
        """
        most = np.zeros(len(demands.shape_tiers), dtype=np.int64)
        slots = self._gpus // demands.gpus_of_shape[:, np.newaxis] * demands.nodes_of_shape
        for tier, indices, shape in demands.bounded_of_tier:
            first = self._fabric.first_node_of_domain[tier][: self._fabric.domains(tier)]
            most[indices] = np.add.reduceat(slots, first, axis=1).max(axis=1)[shape]
        return most

    def all_gpus(self) -> int:
        """The GPUs of all nodes."""
        return int(self._gpus.sum())


def free_gpus(rooms: Occupancy) -> IntArray:
    """The GPUs of each node that are free as a whole, in a new array."""
    fabric = rooms.fabric
    return np.array(
        rooms.free_gpus_in_domain(fabric.node_tier)[: len(fabric.nodes)], dtype=np.int64
    )


def add_gpus(gpus: IntArray, fabric: Fabric, members: Iterable[MemberPlacement]) -> None:
    """Add the GPUs of members to those of their nodes; a part of a GPU counts as a whole one."""
    for member in members:
        node = fabric.index_of_node.get(member.node)
        if node is not None:
            gpus[node] += len(member.gpus) + len(member.parts)
