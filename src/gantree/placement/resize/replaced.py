"""Replaces one member of a placed gang: all others keep their nodes and devices.

Its own place is taken again if it may be: the others reach it as before. Else it may go where the gang's requests are
kept whatever the others do: to the domain of the gang of every tier in which all must be together, of its role's, of
its run's (slices), and where no domain gets more members than its limit. Nearest first, by tiers from narrow to wide.

A gang with requests inside the node, a slice of a torus, and a member with parts of GPUs get the same place again or
none: another place could break what the other members have, so the whole gang is placed anew instead.

Nodes that are held back as spares are for those that fail, so they count here.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gantree.model.jobs import Job, TopologySpec
from gantree.model.placements import Domain, MemberPlacement, Placement
from gantree.placement.choice.search import find
from gantree.placement.request.anti_affinity import excluded_nodes
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.topology_request import (
    RoleRequest,
    TopologyRequest,
    topology_request_of,
)
from gantree.topology.fabric.fabric import BoolArray, Fabric
from gantree.topology.occupancy.occupancy import Occupancy


def replaced(
    occupancy: Occupancy,
    owner: str,
    job: Job,
    member: MemberPlacement,
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
) -> MemberPlacement | None:
    """The place for a member of the gang that an owner holds, member included; None where there is none now."""
    where = occupancy.copy()
    where.drop(owner, (member,))
    where.held_back_node[:] = False
    if where.usable(member.node) and not where.missing((member,)):
        return member
    others = where.owners[owner]
    if not others or member.parts or job.topology.box is not None:
        return None
    request = topology_request_of(where.fabric, job)
    role = next(each for each in request.roles if each.name == member.role)
    if request.together or role.layers:
        return None
    alone = _alone(job, member)
    allowed = _allowed(where, request, role, member, others)
    near_first = _nearest_first(where, allowed, member, others)
    for nodes in (allowed,) if preferences.blind else near_first:
        near = where.copy()
        near.usable_node &= nodes
        found = find(near, alone, preferences)
        if found is not None:
            return replace(found.members[0], role=member.role, rank=member.rank)
    return None


def domain_of(fabric: Fabric, placement: Placement, member: MemberPlacement) -> Domain:
    """The narrowest domain of a gang once a member is there instead of where it was."""
    nodes = [fabric.index_of_node[each.node] for each in with_member(placement, member).members]
    return fabric.domain(*fabric.narrowest_domain(sorted(set(nodes))))


def with_member(placement: Placement, member: MemberPlacement) -> Placement:
    """A gang's place with a member there instead of where it was."""
    name = (member.role, member.rank)
    members = (member if (each.role, each.rank) == name else each for each in placement.members)
    return replace(placement, members=tuple(members))


def _alone(job: Job, member: MemberPlacement) -> Job:
    """A job of this one member, that requests nothing of the topology."""
    role = next(role for role in job.roles if role.name == member.role)
    one = replace(role, members=1, topology=TopologySpec())
    return replace(job, roles=(one,), topology=TopologySpec(), parallelism=(), elastic=None)


def _nearest_first(
    where: Occupancy,
    allowed: BoolArray,
    member: MemberPlacement,
    others: tuple[MemberPlacement, ...],
) -> Iterator[BoolArray]:
    """Masks of the nodes that a member may go to, from those near to where it was to all."""
    fabric = where.fabric
    old, anchor = (fabric.index_of_node[each.node] for each in (member, others[0]))
    narrowest, _ = fabric.narrowest_domain(
        sorted({fabric.index_of_node[each.node] for each in others})
    )
    for tier in range(narrowest, -1, -1):
        domain = fabric.domain_of_node[tier]
        yield allowed & ((domain == domain[anchor]) | (domain == domain[old]))


def _allowed(
    where: Occupancy,
    request: TopologyRequest,
    role: RoleRequest,
    member: MemberPlacement,
    others: tuple[MemberPlacement, ...],
) -> BoolArray:
    """Mask of the nodes on which a member breaks nothing that must hold of the gang."""
    fabric = where.fabric
    old = fabric.index_of_node[member.node]
    allowed: BoolArray = np.ones(len(fabric.nodes), dtype=np.bool_)
    mates = [fabric.index_of_node[each.node] for each in others if each.role == member.role]
    for tier, domain in enumerate(fabric.domain_of_node):
        divided = role.multiple_in_domain[tier] > 1 or tier == (role.even_at or -1)
        if tier in (request.whole_at, role.whole_at) or divided:
            allowed &= domain == domain[old]
        most = role.most_in_domain[tier] if role.most_in_domain else len(others) + 1
        counts = np.bincount(domain[mates], minlength=int(domain.max()) + 1)
        allowed &= counts[domain] < most
    if request.apart:
        strangers = where.copy()
        for name, members in where.owners.items():
            if members == others:
                del strangers.owners[name]
        allowed &= ~excluded_nodes(strangers, request.apart)
    return allowed
