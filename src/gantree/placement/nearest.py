"""How near a gang that found no place came to one: what had to be together, and the domain with most room for it.

Room is counted on usable nodes that could hold a member of the role if they were empty. The sentences are made in
`placement.refusal`.
"""

from dataclasses import dataclass

import numpy as np

from gantree.placement.devices import inner_domains
from gantree.placement.slots import SlotShape, slots
from gantree.placement.wish import RoleWish, Wish
from gantree.topology.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Roomiest:
    """The domain with most free GPUs of the tier in question, and for how many members it has room."""

    tier: str
    name: str
    members: int
    free_gpus: int


def is_bound(wish: Wish) -> bool:
    """Whether anything but the node binds members together."""
    return bool(wish.whole_at) or any(
        role.whole_at or role.layers or max(role.multiple_in_domain) > 1 for role in wish.roles
    )


def tier_in_question(wish: Wish) -> int:
    """The tier whose domains were too small: the gang's, else that of a role or slice, else the node."""
    if wish.whole_at:
        return wish.whole_at
    node = len(wish.roles[0].multiple_in_domain) - 1
    of_roles = [role.whole_at for role in wish.roles if role.whole_at]
    sliced = [
        max(tier for tier, multiple in enumerate(role.multiple_in_domain) if multiple == size)
        for role in wish.roles
        if (size := max(role.multiple_in_domain)) > 1
    ]
    return max((*of_roles, *sliced), default=node)


def asked_together(wish: Wish) -> tuple[int, int]:
    """(members, GPUs) that must be in one domain of the tier in question."""
    if wish.whole_at:
        members = sum(role.members for role in wish.roles)
        return members, sum(role.members * role.shape.gpus for role in wish.roles)
    tier = tier_in_question(wish)
    runs = [
        role.members if role.whole_at == tier else role.multiple_in_domain[tier]
        for role in wish.roles
    ]
    gpus = [run * role.shape.gpus for run, role in zip(runs, wish.roles, strict=True)]
    return max(zip(runs, gpus, strict=True), key=lambda run: (run[1], run[0]))


def domain_word(fabric: Fabric, wish: Wish) -> str:
    """What people call the domain in question."""
    tier, inner = tier_in_question(wish), _inner_tier(wish)
    return f"{inner} domain" if inner and tier == fabric.node_tier else fabric.tiers[tier]


def eligible_nodes(occupancy: Occupancy, role: RoleWish) -> BoolArray:
    """Usable nodes that could hold a member of the role if they were empty."""
    shape = SlotShape.of(role.shape, role.shape.models)
    could: BoolArray = slots(occupancy.emptied(), shape).of_node > 0
    return could & occupancy.usable_node


def members_with_room(occupancy: Occupancy, wish: Wish) -> int:
    """For how many members there is room, role by role, each role as if it were alone."""
    return int(_members_in_domain(occupancy, wish, 0)[0])


def roomiest_domain(occupancy: Occupancy, wish: Wish) -> Roomiest:
    """The domain of the tier in question that has most free GPUs, or slots for members without GPUs."""
    fabric, tier = occupancy.fabric, tier_in_question(wish)
    members = _members_in_domain(occupancy, wish, tier)
    eligible = np.logical_or.reduce([eligible_nodes(occupancy, role) for role in wish.roles])
    free = np.add.reduceat(
        np.where(eligible, _free_together(occupancy, wish), 0),
        fabric.first_node_of_domain[tier][:-1],
    )
    with_gpus = any(role.shape.gpus for role in wish.roles)
    order = (-members, -free) if with_gpus else (-free, -members)
    best = int(np.lexsort(order)[0])
    name = fabric.names_of_domain[tier][best]
    return Roomiest(fabric.tiers[tier], name, int(members[best]), int(free[best]))


def _members_in_domain(occupancy: Occupancy, wish: Wish, tier: int) -> IntArray:
    members = np.zeros(occupancy.fabric.domains(tier), dtype=np.int64)
    for role in wish.roles:
        table = slots(occupancy, SlotShape.of(role.shape, role.shape.models))
        members += np.minimum(table.in_domain[tier], role.members)
    return members


def _inner_tier(wish: Wish) -> str | None:
    return wish.together or next((role.layers[0][1] for role in wish.roles if role.layers), None)


def _free_together(occupancy: Occupancy, wish: Wish) -> IntArray:
    """Free GPUs by node; where a domain inside the node is asked for, those of its roomiest one."""
    inner = _inner_tier(wish)
    if inner is None:
        return occupancy.free_gpus_of_node
    fabric = occupancy.fabric
    roomiest = [
        max(
            ((free & d).bit_count() for d in inner_domains(fabric.machine_of_node(n), inner)),
            default=0,
        )
        for n, free in enumerate(occupancy.free_mask_of_node)
    ]
    return np.array(roomiest, dtype=np.int64)
