"""The cached tightest node: the next equal gang is placed there without a search over all nodes.

Equal gangs of one node come one after the other, and each takes from the tightest node. That node stays the tightest
while it holds one more gang and nothing else has changed: no node with fewer free GPUs held a gang before, so none does
now. In any other case the node has to be searched (`placement.counting.one_node`).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from gantree.model.jobs import Shape
from gantree.placement.slots.problem import Problem
from gantree.topology.occupancy.change_log import Index
from gantree.topology.occupancy.occupancy import Occupancy, memory_KiB, microcpus


class _CacheKey(NamedTuple):
    """What the tightest node depends on beside the occupancy; among names the nodes that may be used."""

    shape: Shape
    members: int
    models: tuple[str, ...]
    among: Hashable


@dataclass(slots=True)
class _CachedNode(Index):
    """The last tightest node, how many free GPUs it had, and at which version of the occupancy."""

    key: _CacheKey
    node: int
    free_gpus: int
    version: int

    def check(self, occupancy: Occupancy) -> None:
        """AssertionError if the entry should be current and is not."""
        if occupancy.version == self.version:
            now = int(occupancy.free_gpus_of_node[self.node])
            assert now == self.free_gpus, f"node {self.node} has {now} free GPUs"


_CACHED = "the tightest node that was found last"


def cached_tightest_node(problem: Problem) -> int | None:
    """The last tightest node, if it is the tightest for this problem, too; None if that is not known."""
    occupancy = problem.occupancy
    last = occupancy.indexes.get(_CACHED)
    if last is None:
        return None
    assert isinstance(last, _CachedNode), "the name is its own"
    if last.key != _cache_key(problem) or not occupancy.log.has_only(last.node, last.version):
        return None
    free_gpus = int(occupancy.free_gpus_of_node[last.node])
    if free_gpus > last.free_gpus or not _holds(problem, last.node):
        return None
    last.free_gpus, last.version = free_gpus, occupancy.version
    return last.node


def cache_tightest_node(problem: Problem, node: int | None) -> None:
    """Cache the tightest node of the occupancy as it is."""
    if node is not None:
        occupancy = problem.occupancy
        free_gpus = int(occupancy.free_gpus_of_node[node])
        found = _CachedNode(_cache_key(problem), node, free_gpus, occupancy.version)
        occupancy.indexes[_CACHED] = found


def _cache_key(problem: Problem) -> _CacheKey:
    shape = problem.request.roles[0].shape
    return _CacheKey(shape, problem.members[0], problem.models_of_role[0], problem.among_of(0))


def _holds(problem: Problem, node: int) -> bool:
    """Whether a node that was admitted before has the amounts for the one role, all of its members."""
    occupancy, members = problem.occupancy, problem.members[0]
    shape = problem.request.roles[0].shape
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
