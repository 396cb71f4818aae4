"""The nearest miss of a refused gang: what must be in one domain, and the domain with the most room for it.

Room is counted on usable nodes that could hold a member of the role if they were empty. The sentences are made in
`placement.refusal.refusal`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.machine.intra_node import ALL
from gantree.placement.refusal.on_empty import OnEmpty, union
from gantree.placement.request.topology_request import ANY_NUMBER, RoleRequest, TopologyRequest
from gantree.placement.slots.parts import is_apart
from gantree.placement.slots.slots import SlotTable, slots_of
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Roomiest:
    """The roomiest domain of the tier in question: for how many members it has room, and its free GPUs."""

    tier: str
    name: str
    members: int
    free_gpus: int


def is_bound(request: TopologyRequest) -> bool:
    """Whether anything but the node binds members together."""
    return bool(request.whole_at) or any(
        role.whole_at or role.layers or role.multiple_in_domain[0] > 1 or role.is_limited
        for role in request.roles
    )


def tier_in_question(request: TopologyRequest) -> int:
    """The tier whose domains were too small: the gang's, else that of a role or slice, else the node."""
    if request.whole_at:
        return request.whole_at
    node = len(request.roles[0].multiple_in_domain) - 1
    of_roles = [role.whole_at for role in request.roles if role.whole_at]
    sliced = [
        max(tier for tier, multiple in enumerate(role.multiple_in_domain) if multiple == size)
        for role in request.roles
        if (size := max(role.multiple_in_domain)) > 1
    ]
    return max((*of_roles, *sliced), default=node)


def members_in_one_domain(request: TopologyRequest) -> tuple[int, int]:
    """(members, GPUs) that must be in one domain of the tier in question."""
    if request.whole_at:
        members = sum(role.members for role in request.roles)
        return members, sum(role.members * role.shape.gpus for role in request.roles)
    tier = tier_in_question(request)
    runs = [
        role.members if role.whole_at == tier else role.multiple_in_domain[tier]
        for role in request.roles
    ]
    gpus = [run * role.shape.gpus for run, role in zip(runs, request.roles, strict=True)]
    return max(zip(runs, gpus, strict=True), key=lambda run: (run[1], run[0]))


def domain_word(fabric: Fabric, request: TopologyRequest) -> str:
    """What people call the domain in question."""
    tier, inner = tier_in_question(request), _inner_tier(request)
    return f"{inner} domain" if inner and tier == fabric.node_tier else fabric.tiers[tier]


def eligible_nodes(occupancy: Occupancy, roles: Sequence[RoleRequest]) -> BoolArray | None:
    """Nodes that count: usable, and such that they could hold a member of a role if they were empty. None for all."""
    known = OnEmpty.of(occupancy)
    eligible = union([known.eligible(role) for role in roles])
    usable = usable_nodes(occupancy)
    if usable is None:
        return None if eligible.every else eligible.nodes
    return usable if eligible.every else usable & eligible.nodes


def usable_nodes(occupancy: Occupancy) -> BoolArray | None:
    """Nodes that may be used: sound, and not held back as spares. None for all."""
    held_back = bool(occupancy.fabric.cluster.spares)
    if not held_back:
        return None if occupancy.usable_node.all() else occupancy.usable_node
    return occupancy.usable_node & ~occupancy.held_back_node


def free_gpus(occupancy: Occupancy, nodes: BoolArray | None) -> int:
    """Free GPUs on these nodes (None: on all)."""
    if nodes is None:
        return int(occupancy.free_gpus_in_domain(0)[0])
    return int((occupancy.free_gpus_of_node * nodes).sum())


def table_of(occupancy: Occupancy, request: TopologyRequest, role: RoleRequest) -> SlotTable:
    """Slots of a role of the gang, without its requests inside a node, on all GPU models that it accepts."""
    apart = role.shape.part and is_apart(request)
    return slots_of(occupancy, role.shape, role.shape.models, apart=apart)


def members_with_room(occupancy: Occupancy, request: TopologyRequest) -> int:
    """For how many members there is room, role by role, each role as if it were alone."""
    return int(_members_in_domain(occupancy, request, 0)[0])


def room_when_spread(
    occupancy: Occupancy, request: TopologyRequest, role: RoleRequest
) -> tuple[int, int, int]:
    """(tier, most, members): over the domains of the widest tier that limits a role there is room for so many."""
    tier = next(t for t, most in enumerate(role.most_in_domain) if most < ANY_NUMBER)
    most = role.most_in_domain[tier]
    slots = table_of(occupancy, request, role).in_domain[tier]
    return tier, most, int(np.minimum(slots, most).sum())


def roomiest_domain(occupancy: Occupancy, request: TopologyRequest, by_gpus: bool) -> Roomiest:
    """The domain of the tier in question that has most free GPUs, or else room for most members.

    Only a domain with nodes that count, or where none counts now with nodes that could hold a member if empty.
    """
    fabric, tier = occupancy.fabric, tier_in_question(request)
    members, free = (
        _members_in_domain(occupancy, request, tier),
        _free_in_domain(occupancy, request, tier),
    )
    keys = (free, members) if by_gpus else (members, free)
    best = _first_largest(_admitting_domains(occupancy, request, tier), *keys)
    name = fabric.names_of_domain[tier][best]
    return Roomiest(fabric.tiers[tier], name, int(members[best]), int(free[best]))


def _admitting_domains(
    occupancy: Occupancy, request: TopologyRequest, tier: int
) -> IntArray | None:
    """Domains with nodes that count, else with nodes that would if they could be used; None for all."""
    nodes = eligible_nodes(occupancy, request.roles)
    if nodes is None:
        return None
    if not nodes.any():
        known = OnEmpty.of(occupancy)
        nodes = union([known.eligible(role) for role in request.roles]).nodes
    first = occupancy.fabric.first_node_of_domain[tier][:-1]
    return np.flatnonzero(np.logical_or.reduceat(nodes, first))


def _first_largest(among: IntArray | None, first: IntArray, then: IntArray) -> int:
    """Where `first` is largest, and among these `then`, and among these the first place."""
    if among is not None:
        return int(among[_first_largest(None, first[among], then[among])])
    places = np.flatnonzero(first == first[first.argmax()])
    return int(places[then[places].argmax()])


def _members_in_domain(occupancy: Occupancy, request: TopologyRequest, tier: int) -> IntArray:
    """members[domain] for which a domain has room, each role as if it were alone."""
    in_domain = [
        np.minimum(_room_in_domain(occupancy, request, role, tier), role.members)
        for role in request.roles
    ]
    return in_domain[0] if len(in_domain) == 1 else np.add.reduce(in_domain)


def _room_in_domain(
    occupancy: Occupancy, request: TopologyRequest, role: RoleRequest, tier: int
) -> IntArray:
    """room[domain] for members of a role, no more in any domain inside than it may have there."""
    table, fabric = table_of(occupancy, request, role), occupancy.fabric
    if not role.is_limited:
        return table.in_domain[tier]
    room: IntArray = np.minimum(table.of_node, role.most_in_domain[fabric.node_tier])
    for outer in range(fabric.node_tier - 1, tier - 1, -1):
        outer_of_inner = fabric.domain_of_node[outer][fabric.first_node_of_domain[outer + 1][:-1]]
        sums = np.zeros(fabric.domains(outer), dtype=np.int64)
        np.add.at(sums, outer_of_inner, room)
        room = np.minimum(sums, role.most_in_domain[outer])
    return room


def _free_in_domain(occupancy: Occupancy, request: TopologyRequest, tier: int) -> IntArray:
    """Return free[domain] GPUs on eligible nodes; for a node those of its largest inner domain, if one is requested."""
    inner = _inner_tier(request)
    nodes = eligible_nodes(occupancy, request.roles)
    if inner is not None:
        one_gpu = slots_of(occupancy, Shape(gpus=1), (), ((ALL, inner),))
        free: IntArray = one_gpu.of_node
    elif nodes is None:
        return occupancy.free_gpus_in_domain(tier)
    else:
        free = occupancy.free_gpus_of_node
    if nodes is not None:
        free = free * nodes
    sums: IntArray = np.add.reduceat(free, occupancy.fabric.first_node_of_domain[tier][:-1])
    return sums


def _inner_tier(request: TopologyRequest) -> str | None:
    return request.together or next(
        (role.layers[0][1] for role in request.roles if role.layers), None
    )
