"""Shrinks a placed gang: chooses the members that are removed; the others stay.

What stays is in as few domains as can be, of the widest tier first, then of the next, down to the nodes; among equals
those domains are left that become wholly free, again the widest first (`placement.resize.unit_assignment`). On the
nodes that are left members leave either one node after the other or evenly, whichever makes what stays faster; which of
them, so that those that stay are fastest among each other. Slices stay whole. A gang that is spread evenly stays as
even as it can be before it comes together.

Members keep their order among each other (`in_place.kept_ranks`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.request.placed_gang import PlacedGang, units_of
from gantree.placement.request.topology_request import RoleRequest
from gantree.placement.resize.unit_assignment import UnitAssignment, UnitsByNode, digits
from gantree.text.words import plural
from gantree.topology.cost.cost import GIB, pricer_of
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

MOST_SUBSETS = 256
"""Ways to leave a node that are priced; where there are more, the first members stay."""


def shrunk(occupancy: Occupancy, job: Job, placement: Placement, members: int) -> Placement:
    """A gang that the occupancy holds, with fewer members.

    Raises BadInput for a size above that of the gang or that the job may not have, Unsupported for a gang of several
    roles or on a slice of a torus.
    """
    gang = PlacedGang.of(occupancy.fabric, job, placement)
    asked = gang.resized_job(members)
    if members > gang.size:
        raise BadInput(
            f"job {job.name}: {plural(members, 'member')}; it has {gang.size}: `grown` adds some"
        )
    if members == gang.size:
        return placement
    for request in gang.requests_at(asked):
        found = [_left(occupancy, gang, asked, request.roles[0], even) for even in (False, True)]
        return min(found, key=_seconds)
    raise AssertionError(f"job {job.name}: the gang as it stands does not keep its own requests")


def _seconds(place: Placement) -> float:
    predicted = place.predicted
    return predicted.comm_s if predicted.step_s is None else predicted.step_s


def _left(
    occupancy: Occupancy, gang: PlacedGang, asked: Job, role: RoleRequest, even: bool
) -> Placement:
    """What stays where nodes are left one after the other, or evenly."""
    unit, _ = units_of(role)
    assigned = _assigned(occupancy, gang, asked.members, role, even)
    kept = {
        node: _choose_remaining(gang.fabric, node, gang.of_node[node], units, unit)
        for node, units in assigned
    }
    return gang.with_members(asked, kept)


def _assigned(
    occupancy: Occupancy, gang: PlacedGang, members: int, role: RoleRequest, even: bool
) -> UnitsByNode:
    fabric, (unit, multiple) = gang.fabric, units_of(role)
    most = {node: len(there) // unit for node, there in gang.of_node.items()}
    tier, domain = fabric.narrowest_domain(gang.of_node)
    price = _Price.of(occupancy, gang, role, tier, even)
    assignment = UnitAssignment(
        fabric, members // unit, most, multiple, price.of_units, gathers=False
    )
    assigned = assignment.in_domain(tier, domain)
    assert assigned is not None, f"{members} members are no whole slices of those that stand"
    return assigned


@dataclass(frozen=True, slots=True, eq=False)
class _Price:
    """What it costs that units stay in a domain: one count of its tier, and one where it would else be wholly free.

    Before that, over the tier where the gang is to be even, the square of the members there, in whole runs. After it,
    on nodes, whether only some stay, or, where nodes are left evenly, the square of those that stay.
    """

    gang: PlacedGang
    role: RoleRequest
    even: bool
    frees: tuple[frozenset[int], ...]
    uneven: int
    used: Mapping[int, int]
    held: Mapping[int, int]
    last: int

    @classmethod
    def of(
        cls, occupancy: Occupancy, gang: PlacedGang, role: RoleRequest, top: int, even: bool
    ) -> "_Price":
        """Lay out the digits for domains inside one of tier top."""
        tiers = range(top + 1, gang.fabric.node_tier + 1)
        runs = gang.size // role.multiple_in_domain[role.even_at]
        counts = [len(gang.members_in[tier]) for tier in tiers]
        last = gang.size**2 if even else len(gang.of_node)
        uneven, *rest = digits([runs**2 if role.even_at else 0, *counts, *counts, last])
        used, held = rest[: len(counts)], rest[len(counts) : -1]
        return cls(
            gang,
            role,
            even,
            _freed(occupancy, gang),
            uneven,
            dict(zip(tiers, used, strict=True)),
            dict(zip(tiers, held, strict=True)),
            rest[-1],
        )

    def of_units(self, tier: int, domain: int, units: IntArray) -> IntArray:
        """As `dealing.Price`."""
        members = units * self.role.multiple_in_domain[-1]
        cost = np.full_like(units, self.used.get(tier, 0))
        if domain in self.frees[tier]:
            cost += self.held.get(tier, 0)
        if tier == self.role.even_at and tier:
            cost += self.uneven * (members // self.role.multiple_in_domain[tier]) ** 2
        if tier == self.gang.fabric.node_tier:
            partly = members != len(self.gang.of_node[domain])
            cost += self.last * (members**2 if self.even else partly)
        return cost


def _freed(occupancy: Occupancy, gang: PlacedGang) -> tuple[frozenset[int], ...]:
    """By tier: domains of the gang all of whose GPUs would be free without it."""
    fabric, freed = gang.fabric, []
    for tier, counts in enumerate(gang.members_in):
        free = occupancy.free_gpus_in_domain(tier)
        gpus = dict.fromkeys(counts, 0)
        for node, members in gang.of_node.items():
            gpus[int(fabric.domain_of_node[tier][node])] += sum(len(m.gpus) for m in members)
        first = fabric.first_node_of_domain[tier]
        freed.append(
            frozenset(
                domain
                for domain, held in gpus.items()
                if free[domain] + held
                == fabric.gpus_of_node[first[domain] : first[domain + 1]].sum()
            )
        )
    return tuple(freed)


def _choose_remaining(
    fabric: Fabric, node: int, members: Sequence[MemberPlacement], units: int, unit: int
) -> list[MemberPlacement]:
    """So many units of a node's members, in rank order, that are fastest among each other."""
    runs = [members[start : start + unit] for start in range(0, len(members), unit)]
    ways = list(islice(combinations(range(len(runs)), units), MOST_SUBSETS))
    gpus = [[gpu for run in way for member in runs[run] for gpu in member.gpus] for way in ways]
    best = 0
    if 1 < len(ways) == comb(len(runs), units) and len(gpus[0]) > 1:
        places = np.array(gpus, dtype=np.int64)
        nodes = np.full_like(places, node)
        best = int(
            np.argmin(pricer_of(fabric).price_many("all_reduce", GIB, nodes, places).seconds)
        )
    return [member for run in ways[best] for member in runs[run]]
