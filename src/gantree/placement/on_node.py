"""What the members of a gang on one node get of its GPUs: whole ones, and parts.

Parts are chosen first, on GPUs that nobody could have whole as far as cutting them is not dearer; then whole GPUs, on
GPUs that are not in MIG mode as far as they go. Where the whole ones then do not fit, parts are chosen again such that
they break into as few free GPUs as can be.

Memory bandwidth beside the GPUs belongs to a NUMA node, so where it is asked roles are served one after the other.
CPUs, memory and NICs are sums, which the slots of a node have counted (`placement.slots`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.model.cluster import Machine
from gantree.model.jobs import Shape
from gantree.placement.gpu_sets import Fed
from gantree.placement.inside import Around, Demand, GpusOfMembers, choose_for_members
from gantree.placement.numa import (
    gpus_fed,
    gpus_within_bandwidth,
    members_by_bandwidth,
    split_numa,
)
from gantree.placement.parts import Part, beside_bandwidth, choose_parts, is_apart, with_part
from gantree.placement.problem import Counts, Problem
from gantree.topology.masks import mask_of
from gantree.topology.parts import NodeState


@dataclass(frozen=True, slots=True)
class OnNode:
    """By role and member: gpus, the whole GPUs, and parts, for roles that take parts (() for others).

    before and after are the states of the node's GPUs, None where nothing of it is or becomes cut or shared.
    """

    gpus: tuple[GpusOfMembers, ...]
    parts: tuple[tuple[Part, ...], ...] = ()
    before: NodeState | None = None
    after: NodeState | None = None


def inside_node(problem: Problem, node: int, x: Counts) -> OnNode | None:
    """GPUs of x members of each role on a node, by index; None where GPUs, inner tiers or bandwidth do not allow it."""
    return NodeGpus(problem).on(node, x)


_Around = tuple[int | None, Fed]
"""As `inside.Around`: free NICs, NUMA nodes short of cores."""

_WHOLE_KEPT: dict[tuple[object, ...], tuple[Machine, OnNode]] = {}
"""Answers for one role of whole GPUs, with the machine, held so that no other gets its id."""
_FED_KEPT: dict[tuple[object, ...], tuple[Machine, Fed]] = {}
"""NUMA nodes short of cores, likewise."""
MOST_KEPT = 1 << 16


class NodeGpus:
    """Hands out the GPUs of nodes to the members of one gang; what is the same for all nodes is read once."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._occupancy, self._fabric = problem, problem.occupancy, problem.fabric
        roles = problem.wish.roles
        shapes = [role.shape for role in roles]
        self._has_parts = any(shape.part or shape.memory_GBps for shape in shapes)
        self._asks_nics = any(shape.nics for shape in shapes)
        one = shapes[0] if len(roles) == 1 else None
        self._asks_cores = one if one is not None and (one.cpus or one.memory_GiB) else None
        self._key = one and (one.gpus, one.nics, roles[0].layers, problem.wish.together)

    def on(self, node: int, x: Counts) -> OnNode | None:
        """GPUs of x members of each role on a node; None where they do not all fit."""
        if self._has_parts or node in self._occupancy.parts_of_node:
            return _with_parts(self, self._problem, node, x)
        machine = self._fabric.machine_of_node(node)
        free = self._occupancy.free_mask_of_node[node]
        around = self._around(machine, node, x, free)
        key = (id(machine), free, x, around, self._key)
        kept = _WHOLE_KEPT.get(key)
        if kept is not None and self._key is not None:
            return kept[1]
        gpus = self._chosen(machine, x, free, around)
        if gpus is None:
            return None
        found = OnNode(gpus)
        if self._key is not None:
            if len(_WHOLE_KEPT) >= MOST_KEPT:
                _WHOLE_KEPT.clear()
            _WHOLE_KEPT[key] = (machine, found)
        return found

    def whole(self, node: int, x: Counts, free: int) -> tuple[GpusOfMembers, ...] | None:
        """Whole GPUs out of a mask for each member of each role."""
        machine = self._fabric.machine_of_node(node)
        return self._chosen(machine, x, free, self._around(machine, node, x, free))

    def _chosen(
        self, machine: Machine, x: Counts, free: int, around: _Around
    ) -> tuple[GpusOfMembers, ...] | None:
        demands = []
        for members, role in zip(x, self._problem.wish.roles, strict=True):
            gpus, layers = role.shape.gpus, role.layers if role.shape.gpus else ()
            demands.append(Demand(members, gpus, layers, role.shape.nics))
        together = self._problem.wish.together
        return choose_for_members(machine, free, demands, together, Around(*around))

    def _around(self, machine: Machine, node: int, x: Counts, free: int) -> _Around:
        """Free NICs as a mask where they matter: to who asks for them, and to a gang that goes beyond the node.

        And the NUMA nodes that are short of cores and memory, where one role asks for them.
        """
        nics: int | None = None
        if machine.nics and (self._asks_nics or x != self._problem.members):
            nics = self._occupancy.free_nic_mask_of_index(node) if machine.nics_counted else None
        if self._asks_cores is None:
            return nics, ()
        shape, use = self._asks_cores, self._occupancy.numa_use(node)
        key = (id(machine), use, free, shape.gpus, shape.cpus, shape.memory_GiB)
        kept = _FED_KEPT.get(key)
        if kept is None:
            if len(_FED_KEPT) >= MOST_KEPT:
                _FED_KEPT.clear()
            kept = _FED_KEPT[key] = (machine, gpus_fed(machine, use, free, shape))
        return nics, kept[1]


def _with_parts(inside: NodeGpus, problem: Problem, node: int, x: Counts) -> OnNode | None:
    shapes = [role.shape for role in problem.wish.roles]
    machine = problem.fabric.machine_of_node(node)
    if machine.numa_memory_GBps is not None and any(shape.memory_GBps for shape in shapes):
        return _Turns(inside, problem, node).served(x)
    found = _chosen(inside, problem, node, x, sparing=False)
    if found is None and any(shape.part for shape in shapes):
        found = _chosen(inside, problem, node, x, sparing=True)
    return found


def _chosen(
    inside: NodeGpus, problem: Problem, node: int, x: Counts, sparing: bool
) -> OnNode | None:
    """Parts, then whole GPUs out of what they leave."""
    before = problem.occupancy.state_of_node(node)
    asked = [
        (role.shape, members if role.shape.part else 0)
        for role, members in zip(problem.wish.roles, x, strict=True)
    ]
    others = 0 if problem.gpu is None else ((1 << len(before.gpus)) - 1) & ~(1 << problem.gpu)
    chosen = choose_parts(before, asked, is_apart(problem.wish), others, sparing)
    if chosen is None:
        return None
    parts, after = chosen
    gpus = _unswitched(inside, node, x, after, after.free_mask())
    return None if gpus is None else OnNode(gpus, parts, before, _with_whole(after, gpus))


def _unswitched(
    inside: NodeGpus, node: int, x: Counts, state: NodeState, free: int
) -> tuple[GpusOfMembers, ...] | None:
    """Whole GPUs out of a mask, on GPUs in MIG mode, which must be switched, only where the others do not do."""
    in_mode = mask_of(gpu for gpu, one in enumerate(state.gpus) if one.mig)
    quick = inside.whole(node, x, free & ~in_mode)
    return quick if quick is not None or not free & in_mode else inside.whole(node, x, free)


def _with_whole(state: NodeState, gpus: Sequence[GpusOfMembers]) -> NodeState:
    return state.take_whole([gpu for members in gpus for member in members for gpu in member])


class _Turns:
    """Roles served one after the other on one node, where each takes memory bandwidth: parts, GPUs, then the rest."""

    def __init__(self, inside: NodeGpus, problem: Problem, node: int) -> None:
        self._inside, self._problem, self._node = inside, problem, node
        self._machine = problem.fabric.machine_of_node(node)
        self._before = self._state = problem.occupancy.state_of_node(node)
        self._use = problem.occupancy.numa_use(node)
        self._closed = 0

    def served(self, x: Counts) -> OnNode | None:
        """GPUs and parts of x members of each role; None where one finds none."""
        roles = self._problem.wish.roles
        gpus: list[GpusOfMembers] = [((),) * members for members in x]
        parts: list[tuple[Part, ...]] = [() for _ in x]
        for role in sorted(range(len(x)), key=lambda role: _turn(roles[role].shape)):
            shape, members = roles[role].shape, x[role]
            if shape.part:
                parts[role] = self._parts(shape, members)
                homes: GpusOfMembers = tuple((part.gpu,) for part in parts[role])
            elif shape.gpus:
                homes = gpus[role] = self._whole(role, x)
            else:
                enough = members_by_bandwidth(self._machine, self._use, shape) >= members
                homes = gpus[role] if enough else ()
            if len(homes) < members:
                return None
            self._hold_bandwidth(shape, homes)
        return OnNode(tuple(gpus), tuple(parts), self._before, self._state)

    def _parts(self, shape: Shape, members: int) -> tuple[Part, ...]:
        apart = is_apart(self._problem.wish)
        found = beside_bandwidth(
            self._machine, self._use, self._state, shape, apart, self._closed, members
        )
        for part in found:
            self._state = with_part(self._state, part)
            self._closed |= 1 << part.gpu if apart else 0
        return tuple(found)

    def _whole(self, role: int, x: Counts) -> GpusOfMembers:
        shape = self._problem.wish.roles[role].shape
        only = tuple(members if other == role else 0 for other, members in enumerate(x))
        free = gpus_within_bandwidth(self._machine, self._use, self._state.free_mask(), shape)
        gpus = _unswitched(self._inside, self._node, only, self._state, free)
        if gpus is None:
            return ()
        self._state = _with_whole(self._state, gpus)
        return gpus[role]

    def _hold_bandwidth(self, shape: Shape, homes: GpusOfMembers) -> None:
        for gpus in homes:
            parts = split_numa(self._machine, self._use, gpus, (), shape)
            self._use = self._use.changed(self._machine, parts, +1)


def _turn(shape: Shape) -> int:
    """What is bound to few GPUs comes first."""
    if shape.part:
        return 0
    return 1 if shape.gpus else 2
