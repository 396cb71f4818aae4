"""Grows a placed gang: existing members stay, new ones are placed as near as possible.

They go into the narrowest domain around the gang that has room for them; in it as few domains come to those that the
gang uses already as can be, of the widest tier first, then of the next, down to the nodes
(`placement.resize.unit_assignment`); among equals nodes with few free GPUs are taken. A gang that is spread evenly
stays as even as it can be before it stays together. Slices, spreading and being apart hold for old and new members as
one gang. What is only preferred is kept where the gang has it and room allows; of several acceptable GPU models that of
the old members is tried first.

On a node old members come before new ones, so they keep their order among each other (`in_place.kept_ranks`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.counting.least_sums import INFINITE
from gantree.placement.machine.devices import inner_domains
from gantree.placement.machine.intra_node import ALL
from gantree.placement.members.members import placement_of
from gantree.placement.request.anti_affinity import excluded_nodes
from gantree.placement.request.blind_rule import BlindRule
from gantree.placement.request.locality import fetch_s_of_node
from gantree.placement.request.placed_gang import PlacedGang, units_of, whole_at
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.placement.resize.unit_assignment import UnitAssignment, UnitsByNode, digits
from gantree.placement.slots.problem import Problem
from gantree.text.words import plural
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.hardware.masks import gpus_of, mask_of
from gantree.topology.occupancy.gpus.gpu_state import WHOLE
from gantree.topology.occupancy.occupancy import Occupancy


def grown(
    occupancy: Occupancy,
    job: Job,
    placement: Placement,
    members: int,
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
) -> Placement | None:
    """A gang that the occupancy holds, with more members; None where there is no room that keeps its requests.

    `changes` and `fetch_s` are those of the new members. Raises BadInput for a size below that of the gang or that the
    job may not have, Unsupported for a gang of several roles or on a slice of a torus.
    """
    gang = PlacedGang.of(occupancy.fabric, job, placement)
    asked, more = gang.resized_job(members), members - gang.size
    if more < 0:
        raise BadInput(
            f"job {job.name}: {plural(members, 'member')}; it has {gang.size}: `shrunk` takes some away"
        )
    if not more:
        return placement
    for request in gang.requests_at(asked):
        added = _added(occupancy, gang, request, more, BlindRule.of(preferences, job))
        joined = added and _joined(occupancy, gang, asked, added)
        if joined:
            return joined
    return None


def _added(
    occupancy: Occupancy,
    gang: PlacedGang,
    request: TopologyRequest,
    more: int,
    rule: BlindRule | None,
) -> Placement | None:
    """The new members alone, in the best place for them beside the old ones; by a rule, in any that holds them."""
    where = _beside_itself(occupancy, gang, request)
    role = request.roles[0]
    for models in _models(gang, role):
        problem = Problem.of(where, request, (models,))
        if rule is not None:
            problem = replace(problem, gpu_order=rule.gpu_order(gang.fabric))
        assigned = _Growth(problem, gang, role, more, rule).assigned(request)
        if assigned is not None:
            unit, _ = units_of(role)
            return placement_of(problem, [(node, (units * unit,)) for node, units in assigned])
    return None


def _models(gang: PlacedGang, role: RoleRequest) -> Sequence[tuple[str, ...]]:
    """GPU models for the new members: the one that all old ones have, then all that are acceptable."""
    models = role.shape.models
    if not models or not role.shape.on_gpus:
        return (models,)
    used = {gang.fabric.machine_of_node(node).gpu for node in gang.of_node}
    same = tuple(model for model in models if used == {model})
    return tuple(dict.fromkeys((same or models, models)))


@dataclass(frozen=True, slots=True, eq=False)
class _Growth:
    """So many more members of the one role of a problem, beside those that stand."""

    problem: Problem
    gang: PlacedGang
    role: RoleRequest
    more: int
    rule: BlindRule | None = None

    def assigned(self, request: TopologyRequest) -> UnitsByNode | None:
        """Units by node, in the narrowest domain around the gang that has room."""
        fabric, widest = self.problem.fabric, whole_at(request)
        narrowest, _ = fabric.narrowest_domain(self.gang.of_node)
        node = next(iter(self.gang.of_node))
        anywhere = self.role.even_at or self.rule is not None
        for tier in (widest,) if anywhere else range(narrowest, widest - 1, -1):
            assigned = self._in_domain(tier, int(fabric.domain_of_node[tier][node]))
            if assigned is not None:
                return assigned
        return None

    def _in_domain(self, tier: int, domain: int) -> UnitsByNode | None:
        table, (unit, multiple) = self.problem.tables[0], units_of(self.role)
        if table.in_domain[tier][domain] < self.more or self.more % unit:
            return None
        first, stop = self.problem.fabric.first_node_of_domain[tier][domain : domain + 2].tolist()
        slots = np.minimum(table.of_node[first:stop], self.more) // unit
        most = {first + node: int(slots[node]) for node in np.flatnonzero(slots).tolist()}
        price = _Price.of(self, tier, self.more // unit)
        assignment = UnitAssignment(
            self.problem.fabric,
            self.more // unit,
            most,
            multiple,
            price.of_units,
            gathers=not self.role.even_at,
        )
        return assignment.in_domain(tier, domain)


@dataclass(frozen=True, slots=True, eq=False)
class _Price:
    """What units in a domain cost: one count of its tier where the gang does not use it yet, on nodes what is free.

    By a rule that is blind to the topology, only what the rule says of nodes.

    Before that, over the tier where it is to be even, what the square of the members there grows by, in whole runs.
    """

    growth: _Growth
    uneven: int
    new_domain: Mapping[int, int]
    waste: int

    @classmethod
    def of(cls, growth: _Growth, top: int, units: int) -> "_Price":
        """Lay out the digits for domains inside one of tier top."""
        fabric, role = growth.problem.fabric, growth.role
        tiers = range(top + 1, fabric.node_tier + 1)
        runs = (growth.gang.size + growth.more) // role.multiple_in_domain[role.even_at]
        counts = [min(units, fabric.domains(tier)) for tier in tiers]
        uneven, *rest = digits(
            [runs**2 if role.even_at else 0, *counts, units * fabric.most_gpus_of_node]
        )
        return cls(growth, uneven, dict(zip(tiers, rest, strict=False)), rest[-1])

    def of_units(self, tier: int, domain: int, units: IntArray) -> IntArray:
        """As `dealing.Price`."""
        role, problem = self.growth.role, self.growth.problem
        there = self.growth.gang.members_in[tier].get(domain, 0)
        members = there + units * role.multiple_in_domain[-1]
        cost = np.zeros_like(units)
        if tier == role.even_at and tier:
            run = role.multiple_in_domain[tier]
            cost += self.uneven * ((members // run) ** 2 - (there // run) ** 2)
        if not there:
            rule, free = self.growth.rule, problem.occupancy.free_gpus_of_node
            cost += self.new_domain.get(tier, 0) if rule is None else 0
            if tier == problem.fabric.node_tier:
                left = int(free[domain])
                cost += self.waste * (left if rule is None else rule.node_cost(left))
        cost[members > role.most_in_domain[tier]] = INFINITE
        return cost


# ----- what the old members rule out


def _beside_itself(occupancy: Occupancy, gang: PlacedGang, request: TopologyRequest) -> Occupancy:
    """The occupancy as it is for new members: without what they may not have for the old ones' sake."""
    inner = [tier for run, tier in request.roles[0].layers if run == ALL]
    inner += [request.together] if request.together else []
    parts = request.one_member_per_gpu and request.roles[0].shape.part
    if not (inner or parts or request.apart):
        return occupancy
    where = occupancy.copy()
    if request.apart:
        where.usable_node &= ~_near_others(occupancy, gang, request)
    if parts:
        _close_own_gpus(where, gang)
    for tier in inner:
        _close_other_gpus(where, gang, tier)
    return where


def _near_others(occupancy: Occupancy, gang: PlacedGang, request: TopologyRequest) -> BoolArray:
    """Mask of nodes too near jobs to be apart from, of which the gang itself is none."""
    others, own = occupancy.copy(), set(gang.placement.members)
    for owner, members in occupancy.owners.items():
        if own.issubset(members):
            del others.owners[owner]
    return excluded_nodes(others, request.apart)


def _close_own_gpus(where: Occupancy, gang: PlacedGang) -> None:
    """No new member gets a part of a GPU of which an old one has one."""
    for node, members in gang.of_node.items():
        states = list(where.state_of_node(node).gpus)
        for gpu in (gpu for member in members for gpu in member.parts):
            states[gpu] = WHOLE
        where.parts_of_node[node] = tuple(states)


def _close_other_gpus(where: Occupancy, gang: PlacedGang, tier: str) -> None:
    """On the one node of the gang no GPU is free but in its own domain of a tier inside it."""
    ((node, members),) = gang.of_node.items()
    own = mask_of(gpu for member in members for gpu in member.gpus)
    around = 0
    for domain in inner_domains(where.fabric.machine_of_node(node), tier):
        around |= domain if domain & own else 0
    outside = gpus_of(where.free_mask_of_node[node] & ~around) if own else ()
    if outside:
        name = where.fabric.nodes[node].name
        where.take(f"outside the {tier}", (MemberPlacement("outside", 0, name, outside),))


# ----- old and new as one gang


def _joined(
    occupancy: Occupancy, gang: PlacedGang, asked: Job, added: Placement
) -> Placement | None:
    """None where an old member shares its GPU with strangers, which ranks of the larger gang may not."""
    old = dict(gang.of_node)
    if any(member.share is not None and member.share.alone for member in added.members):
        for node, members in gang.of_node.items():
            alone = list(_made_alone(occupancy, node, members))
            if len(alone) < len(members):
                return None
            old[node] = alone
    of_node = {node: list(members) for node, members in old.items()}
    fetches_s = fetch_s_of_node(gang.fabric, asked.data)
    fetch_s = 0.0
    for member in added.members:
        node = gang.fabric.index_of_node[member.node]
        if node not in gang.of_node:
            fetch_s = max(fetch_s, float(fetches_s[node]))
        of_node.setdefault(node, []).append(member)
    return gang.with_members(asked, of_node, added.changes, fetch_s)


def _made_alone(
    occupancy: Occupancy, node: int, members: Sequence[MemberPlacement]
) -> Iterator[MemberPlacement]:
    """The members of a node with their shares held alone; those that have neighbours are left out."""
    states = occupancy.state_of_node(node).gpus
    for member in members:
        if member.share is None or member.share.alone:
            yield member
        elif len(states[member.share.gpu].tenants) == 1:
            yield replace(member, share=replace(member.share, alone=True))
