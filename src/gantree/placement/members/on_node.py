"""Assigns the GPUs of one node to members of a gang: whole ones, and parts.

Parts are chosen first, on GPUs that are already split unless cutting those costs more; then whole GPUs, on GPUs that
are not in MIG mode if they suffice. If the whole ones then do not fit, parts are chosen again such that they split as
few free GPUs as possible.

With memory bandwidth, or parts of GPUs inside a domain of the node, members are served one after the other
(`placement.slots.sequential_members`). CPUs, memory and NICs are sums, which the slots of a node have counted
(`placement.slots.slots`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from gantree.model.cluster import Machine
from gantree.placement.machine.gpu_sets import NumaShortages
from gantree.placement.machine.intra_node import (
    GpusOfMembers,
    Layers,
    NodeContext,
    RoleDemand,
    choose_for_members,
)
from gantree.placement.machine.mig import until_cut_s
from gantree.placement.machine.numa import numa_shortages
from gantree.placement.request.topology_request import RoleRequest
from gantree.placement.slots.parts import Part, choose_parts, is_apart
from gantree.placement.slots.problem import Counts, Problem
from gantree.placement.slots.sequential_members import OfRoles, RoleMembers, SequentialMembers
from gantree.topology.fabric.conditions import worn_gpus
from gantree.topology.hardware.masks import mask_of
from gantree.topology.occupancy.gpus.node_state import NodeState


@dataclass(frozen=True, slots=True)
class OnNode:
    """By role and member: gpus, the whole GPUs, and parts, for roles that take parts (() for others).

    before and after are the states of the node's GPUs, None where nothing of it is or becomes cut or shared. held is
    all that each member gets if members were placed one after the other (`sequential_members`), else ().
    """

    gpus: tuple[GpusOfMembers, ...]
    parts: tuple[tuple[Part, ...], ...] = ()
    before: NodeState | None = None
    after: NodeState | None = None
    held: OfRoles = ()

    @property
    def cut_s(self) -> float:
        """Seconds until the node's GPUs are cut for them."""
        if self.before is None or self.after is None:
            return 0.0
        return until_cut_s(self.before, self.after)


def inside_node(problem: Problem, node: int, x: Counts) -> OnNode | None:
    """GPUs of x members of each role on a node, by index; None where GPUs, inner tiers or bandwidth do not allow it."""
    return NodeGpus(problem).on(node, x)


_Context = tuple[int | None, NumaShortages]
"""The fields of `NodeContext`: free NICs, NUMA nodes short of cores."""

_WHOLE_CACHE: dict[tuple[object, ...], tuple[Machine, OnNode]] = {}
"""Answers for one role of whole GPUs, with the machine, held so that no other gets its id."""
_SHORTAGES_CACHE: dict[tuple[object, ...], tuple[Machine, NumaShortages]] = {}
"""NUMA nodes short of cores, cached likewise."""
MOST_CACHED = 1 << 16


class NodeGpus:
    """Chooses the GPUs of nodes for the members of one gang; what is the same for all nodes is read once."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._occupancy, self._fabric = problem, problem.occupancy, problem.fabric
        roles = problem.request.roles
        shapes = [role.shape for role in roles]
        self._has_parts = any(shape.part or shape.memory_GBps for shape in shapes)
        self._asks_nics = any(shape.nics for shape in shapes)
        bound = problem.request.together is not None or any(role.layers for role in roles)
        self._is_unbound = not self._has_parts and not bound
        one = shapes[0] if len(roles) == 1 else None
        self._asks_cores = one if one is not None and (one.cpus or one.memory_GiB) else None
        self._key = one and (one.gpus, one.nics, roles[0].layers, problem.request.together)

    def on(self, node: int, x: Counts) -> OnNode | None:
        """GPUs of x members of each role on a node; None where they do not all fit."""
        order = self._problem.gpu_order
        return self._within(node, x, -1) if order is None else self._in_order(node, x, order(node))

    def _in_order(self, node: int, x: Counts, order: tuple[int, ...]) -> OnNode | None:
        """The first GPUs of an order that hold them; None as `on`."""
        if self._is_unbound and node not in self._occupancy.parts_of_node:
            free = self._occupancy.free_mask_of_node[node]
            left = iter([gpu for gpu in order if free >> gpu & 1])
            gpus = tuple(
                tuple(tuple(islice(left, role.shape.gpus)) for _ in range(members))
                for members, role in zip(x, self._problem.request.roles, strict=True)
            )
            return OnNode(gpus)
        tries = (self._within(node, x, mask_of(order[:count])) for count in range(len(order) + 1))
        return next((found for found in tries if found is not None), None)

    def _within(self, node: int, x: Counts, within: int) -> OnNode | None:
        """As `on`, out of a mask of GPUs."""
        if self._has_parts or node in self._occupancy.parts_of_node:
            return _with_parts(self, self._problem, node, x, within)
        machine = self._fabric.machine_of_node(node)
        free = self._occupancy.free_mask_of_node[node] & within
        context = self._context(machine, node, x, free)
        key = (id(machine), free, x, context, self._key)
        kept = _WHOLE_CACHE.get(key)
        if kept is not None and self._key is not None:
            return kept[1]
        gpus = self._chosen(machine, x, free, context)
        if gpus is None:
            return None
        found = OnNode(gpus)
        if self._key is not None:
            if len(_WHOLE_CACHE) >= MOST_CACHED:
                _WHOLE_CACHE.clear()
            _WHOLE_CACHE[key] = (machine, found)
        return found

    def whole(self, node: int, x: Counts, free: int) -> tuple[GpusOfMembers, ...] | None:
        """Whole GPUs out of a mask for each member of each role."""
        machine = self._fabric.machine_of_node(node)
        return self._chosen(machine, x, free, self._context(machine, node, x, free))

    def _chosen(
        self, machine: Machine, x: Counts, free: int, context: _Context
    ) -> tuple[GpusOfMembers, ...] | None:
        demands = []
        for members, role in zip(x, self._problem.request.roles, strict=True):
            gpus, layers = role.shape.gpus, role.layers if role.shape.gpus else ()
            demands.append(RoleDemand(members, gpus, layers, role.shape.nics))
        together = self._problem.request.together
        return choose_for_members(machine, free, demands, together, NodeContext(*context))

    def _context(self, machine: Machine, node: int, x: Counts, free: int) -> _Context:
        """Free NICs as a mask if they matter: if some are requested, or the gang uses other nodes, too.

        And the NUMA nodes that are short of cores and memory, if the only role requests them. GPUs with worn links are
        like those of a NUMA node that serves none.
        """
        worn = worn_gpus(self._fabric, node)
        avoided: NumaShortages = ((worn, 0),) if worn else ()
        nics: int | None = None
        if machine.nics and (self._asks_nics or x != self._problem.members):
            nics = self._occupancy.host.sound_nic_mask(node) if machine.nics_counted else None
        if self._asks_cores is None:
            return nics, avoided
        shape, use = self._asks_cores, self._occupancy.numa_use(node)
        key = (id(machine), use, free, shape.gpus, shape.cpus, shape.memory_GiB)
        kept = _SHORTAGES_CACHE.get(key)
        if kept is None:
            if len(_SHORTAGES_CACHE) >= MOST_CACHED:
                _SHORTAGES_CACHE.clear()
            kept = _SHORTAGES_CACHE[key] = (machine, numa_shortages(machine, use, free, shape))
        return nics, (*kept[1], *avoided)


def _with_parts(
    inside: NodeGpus, problem: Problem, node: int, x: Counts, within: int
) -> OnNode | None:
    if problem.gpu is not None:
        within &= 1 << problem.gpu
    roles, has_parts = problem.request.roles, any(role.shape.part for role in problem.request.roles)
    if _is_sequential(problem, node):
        return _in_sequence(problem, node, x, within, sparing=False) or _in_sequence(
            problem, node, x, within, sparing=True
        )
    found = _chosen(inside, problem, node, x, within, sparing=False)
    if found is None and has_parts:
        found = _chosen(inside, problem, node, x, within, sparing=True)
        if found is None and any(role.layers for role in roles):
            found = _in_sequence(problem, node, x, within, sparing=True)
    return found


def _is_sequential(problem: Problem, node: int) -> bool:
    """Whether memory bandwidth is requested and known here, or parts of GPUs must be inside a domain of the node."""
    roles, machine = problem.request.roles, problem.fabric.machine_of_node(node)
    if machine.numa_memory_GBps is not None and any(role.shape.memory_GBps for role in roles):
        return True
    together = problem.request.together is not None
    return any(role.shape.part and (together or role.layers) for role in roles)


def _in_sequence(
    problem: Problem, node: int, x: Counts, within: int, *, sparing: bool
) -> OnNode | None:
    """Role after role (`placement.slots.sequential_members`)."""
    roles = problem.request.roles
    sequential = SequentialMembers(
        problem.occupancy, node, apart=is_apart(problem.request), within=within, sparing=sparing
    )
    asked = [
        RoleMembers(role.shape, members, _layers(role))
        for role, members in zip(roles, x, strict=True)
    ]
    served = sequential.served(asked, problem.request.together)
    if served is None:
        return None
    held, after = served
    gpus = tuple(tuple(one.gpus for one in members) for members in held)
    parts = tuple(tuple(one.part for one in members if one.part is not None) for members in held)
    return OnNode(gpus, parts, problem.occupancy.state_of_node(node), after, held)


def _layers(role: RoleRequest) -> Layers:
    return role.layers if role.shape.on_gpus else ()


def _chosen(
    inside: NodeGpus, problem: Problem, node: int, x: Counts, within: int, *, sparing: bool
) -> OnNode | None:
    """Parts, then whole GPUs out of what they leave."""
    before = problem.occupancy.state_of_node(node)
    asked = [
        (role.shape, members if role.shape.part else 0)
        for role, members in zip(problem.request.roles, x, strict=True)
    ]
    others = ((1 << len(before.gpus)) - 1) & ~within
    chosen = choose_parts(before, asked, is_apart(problem.request), others, sparing)
    if chosen is None:
        return None
    parts, after = chosen
    gpus = _unswitched(inside, node, x, after, after.free_mask() & within)
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
