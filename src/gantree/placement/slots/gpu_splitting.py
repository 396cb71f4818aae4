"""What members with parts of GPUs break on a node: of as few nodes they go to those where that is least.

    seconds     until what must be cut is cut: none where instances are there already, or for shares
    free GPUs   that somebody could have had whole, and now cannot
    what is lost of the GPUs they come to: worth of MIG instances that would have fitted (`mig.worth`), or what is left
                of a shared one, for it had better be full

Which part of a node each member then gets is chosen by the same measures (`placement.machine.mig`,
`placement.machine.shares`). Wishes for the inside of a node and memory bandwidth are not looked at. Answers are kept
beside the occupancy, by node.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.machine.mig import until_cut_s, worth
from gantree.placement.machine.shares import milli_left, sharing_of
from gantree.placement.slots.parts import Part, choose_parts, likeness
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.parts import NodeState

MOST_KEPT = 64
"""Questions remembered per occupancy; then all are forgotten."""

UNKNOWN = -1
_SECOND, _FREE_GPU = 1 << 24, 1 << 16
"""What a second and a free GPU weigh; what is lost of a node's GPUs is less than either."""

_FREE_BITS = 6
"""For the free GPUs of a node, the last that is looked at."""


@dataclass(frozen=True, slots=True)
class Coming:
    """So many members of a shape with a part on one node; apart: each on a GPU of its own."""

    shape: Shape
    members: int
    apart: bool


def least_broken(occupancy: Occupancy, coming: Coming, fits: BoolArray) -> BoolArray:
    """Of the nodes that hold the members, as a mask, at least one, those where they break least."""
    broken = _kept(occupancy).of_nodes(occupancy, coming, fits.nonzero()[0])
    least: BoolArray = fits.copy()
    least[fits] = broken == broken.min()
    return least


def broken_by_one(occupancy: Occupancy, coming: Coming, fits: BoolArray) -> IntArray:
    """By node what the first of the members breaks, then how many free GPUs there are; 0 where not one fits."""
    of_node = np.zeros(len(fits), dtype=np.int64)
    one = replace(coming, members=1)
    of_node[fits] = _kept(occupancy).of_nodes(occupancy, one, fits.nonzero()[0])
    return (of_node << _FREE_BITS) + occupancy.free_gpus_of_node


def _kept(occupancy: Occupancy) -> "_Broken":
    kept = occupancy.indexes.get(_INDEX)
    if not isinstance(kept, _Broken):
        kept = occupancy.indexes[_INDEX] = _Broken(occupancy)
    return kept


_INDEX = "what parts of GPUs break"


class _Broken:
    """of_node[node] by what comes, UNKNOWN where nobody asked since the node changed."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._of_node: dict[Coming, IntArray] = {}
        self._seen = occupancy.version

    def of_nodes(self, occupancy: Occupancy, coming: Coming, nodes: IntArray) -> IntArray:
        """What these nodes lose."""
        self._follow(occupancy)
        of_node = self._of_node.get(coming)
        if of_node is None:
            if len(self._of_node) >= MOST_KEPT:
                self._of_node.clear()
            of_node = np.full(len(occupancy.fabric.nodes), UNKNOWN, dtype=np.int64)
            self._of_node[coming] = of_node
        unknown = nodes[of_node[nodes] == UNKNOWN]
        of_node[unknown] = _counted(occupancy, coming, unknown)
        found: IntArray = of_node[nodes]
        return found

    def check(self, occupancy: Occupancy) -> None:
        """AssertionError where a node would lose something else."""
        self._follow(occupancy)
        for coming, of_node in self._of_node.items():
            known = (of_node != UNKNOWN).nonzero()[0]
            fresh = _counted(occupancy, coming, known)
            assert (of_node[known] == fresh).all(), f"what {coming} breaks is stale"

    def _follow(self, occupancy: Occupancy) -> None:
        changed = occupancy.changed_since(self._seen)
        if changed is None:
            self._of_node.clear()
        elif changed:
            for of_node in self._of_node.values():
                of_node[list(changed)] = UNKNOWN
        self._seen = occupancy.version


def _counted(occupancy: Occupancy, coming: Coming, nodes: IntArray) -> IntArray:
    """Nodes in like states are looked at once."""
    of_state: dict[Hashable, int] = {}
    broken = np.zeros(len(nodes), dtype=np.int64)
    for position, node in enumerate(nodes.tolist()):
        by = occupancy.fabric.nodes[node].mig_by
        key = by, likeness(occupancy, node, coming.shape)
        if key not in of_state:
            of_state[key] = _broken(occupancy.state_of_node(node), coming)
        broken[position] = of_state[key]
    return broken


def _broken(state: NodeState, coming: Coming) -> int:
    chosen = choose_parts(state, [(coming.shape, coming.members)], coming.apart)
    assert chosen is not None, f"{coming} do not fit {state}"
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
