"""GPUs that would be free on each node, as an array, and the most slots that they make in one domain: a bound that
costs no search and no index of shapes.
"""

from collections.abc import Iterable

import numpy as np

from gantree.core.queue.needs import Need
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy


class NodeGpus:
    """Whole GPUs by node, of which some may be counted too often: never more than a node has count."""

    def __init__(self, fabric: Fabric, gpus_of_node: IntArray) -> None:
        self._fabric = fabric
        self._gpus: IntArray = np.minimum(gpus_of_node, fabric.gpus_of_node)
        self._most: dict[object, int] = {}

    def may_hold(self, need: Need) -> bool:
        """Whether a gang may fit; one whose members ask for no whole GPUs always may."""
        if need.shape is None or not need.gpus:
            return True
        return self._most_slots(need) >= need.slots

    def most_slots(self, needs: Iterable[Need]) -> IntArray:
        """The most slots for each of some needs, all of whole GPUs."""
        return np.array([self._most_slots(need) for need in needs], dtype=np.int64)

    def all_gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self._gpus.sum())

    def _most_slots(self, need: Need) -> int:
        """The most slots in one domain of the tier that a gang needs; of a tier inside the node, in one node."""
        assert need.shape is not None
        shape = need.shape
        where = (shape.gpus, shape.labels, shape.models, need.tier)
        most = self._most.get(where)
        if most is None:
            slots = self._gpus // need.gpus * self._fabric.nodes_with(shape.labels, shape.models)
            tier = min(need.tier, self._fabric.node_tier)
            first = self._fabric.first_node_of_domain[tier][: self._fabric.domains(tier)]
            most = self._most[where] = int(np.add.reduceat(slots, first).max())
        return most


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
