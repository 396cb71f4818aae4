"""Places a gang without regard to the topology: baselines against which placement is measured.

Members go to nodes one after the other, each to the node that the rule picks (`placement.request.blind_rule`) among
those that hold it: GPUs, CPUs, memory, models, labels and taints count. What the job requires of the topology holds
too: a place that breaks it is none. So a gang fits here exactly if it fits `placement.choice.choice`; only which place
it gets is chosen blindly: domains, nodes, GPUs, NICs and the order of ranks, which is that in which members were
placed. Preferences (`preferred`, affinity, data, fragmentation) do not count.

Members of one role that must share a domain (`required`, slices) are dealt out in such runs: the first of a run picks
the domain with its node. Roles follow each other in the job's order. Where roles that were placed one by one leave the
last no room, and where several roles bind each other inside nodes, the gang gets the first nodes of the rule's order
that hold all of it together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gantree.model.jobs import Job, Shape
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.counting.room import Room
from gantree.placement.counting.solve import problems, spread_of
from gantree.placement.members.members import placement_of
from gantree.placement.request.blind_rule import BlindRule, PickNode
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.placement.slots.problem import Problem, Spread
from gantree.topology.cost.cost import predict
from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.occupancy.occupancy import Occupancy

NodeOfMember = list[int]
"""The node of each member of a role, in the order of their ranks."""


def place_blindly(
    occupancy: Occupancy, request: TopologyRequest, job: Job, rule: BlindRule
) -> Placement | None:
    """The place of a gang by a rule that is blind to the topology; None where the gang does not fit."""
    order = rule.gpu_order(occupancy.fabric)
    for problem in problems(occupancy, request):
        of_role = _BlindSearch(problem, rule).nodes_of_roles()
        if of_role is not None:
            return _placement(replace(problem, gpu_order=order), of_role, job)
    return None


@dataclass(frozen=True, slots=True)
class _BlindSearch:
    """The nodes of the members of each role."""

    problem: Problem
    rule: BlindRule

    def nodes_of_roles(self) -> list[NodeOfMember] | None:
        """By role; None where the gang does not fit."""
        problem = self.problem
        if len(problem.members) == 1:
            nodes = self._of_one_role(problem, problem.request.roles[0].shape)
            return None if nodes is None else [nodes]
        if _is_plain(problem.request):
            for inside in self._domains():
                of_role = self._role_after_role(inside)
                if of_role is not None:
                    return of_role
        return self._on_first_nodes()

    def _of_one_role(self, problem: Problem, shape: Shape) -> NodeOfMember | None:
        room = Room.of(problem)
        pick = self.rule.picker(problem.occupancy, shape)
        return _in_runs(room, pick, one_by_one=self.rule.draws)

    def _domains(self) -> Iterator[BoolArray]:
        """Masks of the nodes of which one set must hold the gang, in the order of the rule."""
        problem, tier = self.problem, self.problem.request.whole_at
        domain_of_node = problem.fabric.domain_of_node[tier]
        left: BoolArray = np.isin(domain_of_node, problem.domains_with_room(tier))
        pick = self.rule.picker(problem.occupancy, problem.request.roles[0].shape)
        while (node := pick(left & (problem.tables[0].of_node > 0))) is not None:
            inside: BoolArray = domain_of_node == domain_of_node[node]
            yield inside
            left &= ~inside

    def _role_after_role(self, inside: BoolArray) -> list[NodeOfMember] | None:
        """Each role in what those before it left; None says nothing."""
        left = self.problem.occupancy.copy()
        left.usable_node &= inside
        of_role = []
        pairs = zip(self.problem.request.roles, self.problem.models_of_role, strict=True)
        for role, models in pairs:
            alone = Problem.of(left, TopologyRequest((role,)), (models,))
            nodes = self._of_one_role(alone, role.shape)
            if nodes is None:
                return None
            left.take(role.name, placement_of(alone, _spread([nodes])).members)
            of_role.append(nodes)
        return of_role

    def _on_first_nodes(self) -> list[NodeOfMember] | None:
        """On the fewest nodes of the rule's order, from the first on, that hold the gang; on them compactly."""
        problem = self.problem
        best = spread_of(problem)
        if best is None:
            return None
        order = _order(self.rule.picker(problem.occupancy, problem.request.roles[0].shape), problem)
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            found = spread_of(_limited(problem, order[:middle]))
            if found is None:
                low = middle + 1
            else:
                best, high = found, middle
        return [
            [node for node, counts in best for _ in range(counts[role])]
            for role in range(len(problem.members))
        ]


def _is_plain(request: TopologyRequest) -> bool:
    """Whether members of several roles on a node bind each other by nothing but amounts that add up."""
    return request.together is None and not any(map(_binds_inside, request.roles))


def _binds_inside(role: RoleRequest) -> bool:
    return bool(role.layers or role.shape.part or role.shape.memory_GBps)


def _order(pick: PickNode, problem: Problem) -> list[int]:
    left: BoolArray = np.ones(len(problem.fabric.nodes), dtype=np.bool_)
    order = []
    while (node := pick(left)) is not None:
        order.append(node)
        left[node] = False
    return order


def _limited(problem: Problem, nodes: Sequence[int]) -> Problem:
    """The problem on these nodes alone."""
    where = problem.occupancy.copy()
    inside: BoolArray = np.zeros(len(problem.fabric.nodes), dtype=np.bool_)
    inside[nodes] = True
    where.usable_node &= inside
    return Problem.of(where, problem.request, problem.models_of_role)


# ----- one role


def _in_runs(room: Room, pick: PickNode, *, one_by_one: bool) -> NodeOfMember | None:
    """The nodes of the members of one role; one_by_one: each picks anew, else a node that was picked is filled.

    left[tier] is what its domains hold beside the runs that were dealt to them. A run that has a domain has it whole,
    and fits: what a domain holds is counted in whole runs of all narrower tiers.
    """
    fabric, slots = room.problem.fabric, room.capacity[-1].copy()
    runs = {tier: run for tier, run in _runs(room).items() if run > 1 or tier < fabric.node_tier}
    left = {tier: room.capacity[tier].copy() for tier in runs}
    chosen = dict.fromkeys(runs, -1)
    nodes: NodeOfMember = []
    dealt = 0
    while dealt < room.need:
        fits: BoolArray = slots > 0
        for tier, run in runs.items():
            of_node = fabric.domain_of_node[tier]
            fits &= of_node == chosen[tier] if dealt % run else (left[tier] >= run)[of_node]
        node = pick(fits)
        if node is None:
            assert not nodes, "a gang that fits has no place"
            return None
        for tier, run in runs.items():
            if dealt % run == 0:
                chosen[tier] = int(fabric.domain_of_node[tier][node])
                left[tier][chosen[tier]] -= run
        ends = [run - dealt % run for run in runs.values()]
        units = 1 if one_by_one else min(int(slots[node]), room.need - dealt, *ends)
        slots[node] -= units
        nodes += [node] * (units * room.unit)
        dealt += units
    return nodes


def _runs(room: Room) -> dict[int, int]:
    """By tier how many units in a row share one of its domains; only of tiers that bind."""
    if room.plain:
        return {room.narrowest: room.need}
    return {**dict(enumerate(room.multiple)), room.narrowest: room.need}


# ----- from nodes to members


def _spread(of_role: Sequence[NodeOfMember]) -> Spread:
    counts: dict[int, list[int]] = {}
    for role, nodes in enumerate(of_role):
        for node in nodes:
            counts.setdefault(node, [0] * len(of_role))[role] += 1
    return [(node, tuple(counts[node])) for node in sorted(counts)]


def _placement(problem: Problem, of_role: Sequence[NodeOfMember], job: Job) -> Placement:
    """The placement with members numbered as they were placed."""
    placement = placement_of(problem, _spread(of_role), job)
    on_node: dict[tuple[str, str], list[MemberPlacement]] = {}
    for member in reversed(placement.members):
        on_node.setdefault((member.role, member.node), []).append(member)
    names = [node.name for node in problem.fabric.nodes]
    members = tuple(
        replace(on_node[role.name, names[node]].pop(), rank=rank)
        for role, nodes in zip(problem.request.roles, of_role, strict=True)
        for rank, node in enumerate(nodes)
    )
    if members == placement.members:
        return placement
    return replace(placement, members=members, predicted=predict(problem.fabric, members, job))
