"""The node that was found last: the next gang of the same kind goes beside it, without a look at the others.

Gangs of one node that are alike come one after the other, and each takes from the tightest node. That node is tighter
still for the next, while it holds one more: if nothing else has changed since, no other node with fewer free GPUs holds
one, as none did before. Where it has as many free as before, nothing was taken that says which node is the tightest. In
any other case the node has to be looked for (`placement.counting.one_node`).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from gantree.model.jobs import Shape
from gantree.placement.slots.problem import Problem
from gantree.topology.occupancy.change_log import Index
from gantree.topology.occupancy.occupancy import Occupancy, memory_KiB, microcpus


class _Asked(NamedTuple):
    """What the tightest node depends on beside the occupancy; among names the nodes that may be used."""

    shape: Shape
    members: int
    models: tuple[str, ...]
    among: Hashable


@dataclass(slots=True)
class _LastNode(Index):
    """A node, how many free GPUs it had, and the version of the occupancy at which it was the tightest; as it was found
    last."""

    asked: _Asked
    node: int
    free_gpus: int
    version: int

    def check(self, occupancy: Occupancy) -> None:
        """While nothing has changed it says what the occupancy says."""
        if occupancy.version == self.version:
            now = int(occupancy.free_gpus_of_node[self.node])
            assert now == self.free_gpus, f"node {self.node} has {now} free GPUs"


_KEPT = "the node that was found last"


def last_node_for(problem: Problem) -> int | None:
    """The node that was found last, if it is the tightest for this problem, too; None where that is not known."""
    occupancy = problem.occupancy
    last = occupancy.indexes.get(_KEPT)
    if last is None:
        return None
    assert isinstance(last, _LastNode), "the name is its own"
    if last.asked != _asked(problem) or not occupancy.has_touched_only(last.node, last.version):
        return None
    free_gpus = int(occupancy.free_gpus_of_node[last.node])
    if free_gpus > last.free_gpus or not _holds(problem, last.node):
        return None
    last.free_gpus, last.version = free_gpus, occupancy.version
    return last.node


def note_node(problem: Problem, node: int | None) -> None:
    """Remember the tightest node of the occupancy as it is."""
    if node is not None:
        occupancy = problem.occupancy
        free_gpus = int(occupancy.free_gpus_of_node[node])
        found = _LastNode(_asked(problem), node, free_gpus, occupancy.version)
        occupancy.indexes[_KEPT] = found


def _asked(problem: Problem) -> _Asked:
    shape = problem.wish.roles[0].shape
    return _Asked(shape, problem.members[0], problem.models_of_role[0], problem.among_of(0))


def _holds(problem: Problem, node: int) -> bool:
    """Whether a node that was admitted before has the amounts for the one role, all of its members."""
    occupancy, members = problem.occupancy, problem.members[0]
    shape = problem.wish.roles[0].shape
    if not occupancy.usable_node[node]:
        return False
    if problem.fabric.cluster.spares and occupancy.held_back_node[node]:
        return False
    devices = shape.devices
    if members > 1:
        devices = tuple((name, members * count) for name, count in devices)
    return (
        members * shape.gpus <= occupancy.free_gpus_of_node[node]
        and members * microcpus(shape.cpus) <= occupancy.free_microcpus_of_node[node]
        and members * memory_KiB(shape.memory_GiB) <= occupancy.free_memory_KiB_of_node[node]
        and (not shape.nics or members * shape.nics <= occupancy.free_nics_of_node[node])
        and occupancy.devices.has(node, devices)
    )
