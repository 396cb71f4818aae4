"""GPUs that would be free on each node, as an array, and the most slots that they make in one domain: a bound that
costs no search and no index of shapes.
"""

from collections.abc import Iterable

import numpy as np

from gantree.core.queue.needs import NeedTable
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy


class NodeGpus:
    """Whole GPUs by node, of which some may be counted too often: never more than a node has count."""

    def __init__(self, fabric: Fabric, gpus_of_node: IntArray) -> None:
        self._fabric = fabric
        self._gpus: IntArray = np.minimum(gpus_of_node, fabric.gpus_of_node)

    def most_slots(self, needs: NeedTable) -> IntArray:
        """The most slots in one domain for each of `NeedTable.wheres`; of a tier inside the node, in one node. 0 for
        those that are not of whole GPUs.
        """
        most = np.zeros(len(needs.wheres), dtype=np.int64)
        slots = self._gpus // needs.gpus_of_shape[:, np.newaxis] * needs.nodes_of_shape
        for tier, counted, shape in needs.counted_of_tier:
            first = self._fabric.first_node_of_domain[tier][: self._fabric.domains(tier)]
            most[counted] = np.add.reduceat(slots, first, axis=1).max(axis=1)[shape]
        return most

    def all_gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self._gpus.sum())


def free_gpus(rooms: Occupancy) -> IntArray:
    """GPUs of each node that a member could have whole; an array of its own."""
    fabric = rooms.fabric
    return np.array(
        rooms.free_gpus_in_domain(fabric.node_tier)[: len(fabric.nodes)], dtype=np.int64
    )


def add_gpus(gpus: IntArray, fabric: Fabric, members: Iterable[MemberPlacement]) -> None:
    """Count the GPUs of members to their nodes; a part of a GPU counts as the whole."""
    for member in members:
        node = fabric.index_of_node.get(member.node)
        if node is not None:
            gpus[node] += len(member.gpus) + len(member.parts)
