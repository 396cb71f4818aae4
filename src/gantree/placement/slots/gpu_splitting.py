"""The cost of splitting GPUs of a node for members with parts of them: of equally few nodes the cheapest are used.

    seconds     until the instances are cut: none if they exist already, or for shares
    free GPUs   that are no longer whole
    lost worth  of the GPUs used: of the MIG instances that would have fitted (`mig.worth`), or what is left of a
                shared GPU, which had better be full

Which part of a node each member then gets is chosen by the same measures (`placement.machine.mig`,
`placement.machine.shares`). Requests inside the node and memory bandwidth are ignored. Costs are cached with the
occupancy, by node.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.machine.mig import until_cut_s, worth
from gantree.placement.machine.shares import milli_left, sharing_of
from gantree.placement.slots.parts import Part, choose_parts, equivalence_key
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.occupancy import Occupancy

MOST_CACHED = 64
"""Most kinds of members cached per occupancy; one more clears the cache."""

UNKNOWN = -1
_SECOND, _FREE_GPU = 1 << 24, 1 << 16
"""What a second and a free GPU weigh; what is lost of a node's GPUs is less than either."""

_FREE_BITS = 6
"""Bits for the free GPUs of a node, which decide last."""


@dataclass(frozen=True, slots=True)
class IncomingMembers:
    """Members of a shape with a part of a GPU on one node; apart: each on a GPU of its own."""

    shape: Shape
    members: int
    apart: bool


def least_split(occupancy: Occupancy, incoming: IncomingMembers, fits: BoolArray) -> BoolArray:
    """Of the nodes that hold the members (a mask, at least one): those where splitting costs least."""
    cost = _costs(occupancy).of_nodes(occupancy, incoming, fits.nonzero()[0])
    least: BoolArray = fits.copy()
    least[fits] = cost == cost.min()
    return least


def split_by_one(occupancy: Occupancy, incoming: IncomingMembers, fits: BoolArray) -> IntArray:
    """By node the cost of the first member, then the free GPUs; 0 where no member fits."""
    of_node = np.zeros(len(fits), dtype=np.int64)
    one = replace(incoming, members=1)
    of_node[fits] = _costs(occupancy).of_nodes(occupancy, one, fits.nonzero()[0])
    return (of_node << _FREE_BITS) + occupancy.free_gpus_of_node


def _costs(occupancy: Occupancy) -> "_SplitCosts":
    kept = occupancy.indexes.get(_INDEX)
    if not isinstance(kept, _SplitCosts):
        kept = occupancy.indexes[_INDEX] = _SplitCosts(occupancy)
    return kept


_INDEX = "costs of splitting GPUs"


class _SplitCosts:
    """of_node[node] by incoming members; UNKNOWN until it is needed after the node changed."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._of_node: dict[IncomingMembers, IntArray] = {}
        self._seen = occupancy.version

    def of_nodes(
        self, occupancy: Occupancy, incoming: IncomingMembers, nodes: IntArray
    ) -> IntArray:
        """The costs on these nodes."""
        self._follow(occupancy)
        of_node = self._of_node.get(incoming)
        if of_node is None:
            if len(self._of_node) >= MOST_CACHED:
                self._of_node.clear()
            of_node = np.full(len(occupancy.fabric.nodes), UNKNOWN, dtype=np.int64)
            self._of_node[incoming] = of_node
        unknown = nodes[of_node[nodes] == UNKNOWN]
        of_node[unknown] = _counted(occupancy, incoming, unknown)
        found: IntArray = of_node[nodes]
        return found

    def check(self, occupancy: Occupancy) -> None:
        """AssertionError where a cost is stale."""
        self._follow(occupancy)
        for incoming, of_node in self._of_node.items():
            known = (of_node != UNKNOWN).nonzero()[0]
            fresh = _counted(occupancy, incoming, known)
            assert (of_node[known] == fresh).all(), f"the cost of {incoming} is stale"

    def _follow(self, occupancy: Occupancy) -> None:
        changed = occupancy.log.since(self._seen)
        if changed is None:
            self._of_node.clear()
        elif changed:
            for of_node in self._of_node.values():
                of_node[list(changed)] = UNKNOWN
        self._seen = occupancy.version


def _counted(occupancy: Occupancy, incoming: IncomingMembers, nodes: IntArray) -> IntArray:
    """Nodes in equal states are computed once."""
    of_state: dict[Hashable, int] = {}
    cost = np.zeros(len(nodes), dtype=np.int64)
    for position, node in enumerate(nodes.tolist()):
        by = occupancy.fabric.nodes[node].mig_by
        key = by, equivalence_key(occupancy, node, incoming.shape)
        if key not in of_state:
            of_state[key] = _split_cost(occupancy.state_of_node(node), incoming)
        cost[position] = of_state[key]
    return cost


def _split_cost(state: NodeState, incoming: IncomingMembers) -> int:
    chosen = choose_parts(state, [(incoming.shape, incoming.members)], incoming.apart)
    assert chosen is not None, f"{incoming} do not fit {state}"
    (parts,), after = chosen
    free_gpus = (state.free_mask() & ~after.free_mask()).bit_count()
    return (
        round(until_cut_s(state, after) * _SECOND)
        + free_gpus * _FREE_GPU
        + _lost(state, after, parts)
    )


def _lost(before: NodeState, after: NodeState, parts: tuple[Part, ...]) -> int:
    gpus, table = sorted({part.gpu for part in parts}), before.rules.table
    sharing = sharing_of(before.rules)
    lost = sum(milli_left(sharing, after.gpus[gpu]) for gpu in gpus)
    if table is not None:
        for gpu in gpus:
            old, new = before.gpus[gpu].held_instances, after.gpus[gpu].held_instances
            lost += worth(table.name, old) - worth(table.name, new)
    return lost
