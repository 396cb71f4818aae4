"""A greedy search for gangs with too many combinations of roles for tables: role by role, largest members first.

Each role takes its own best place (`placement.counting.one_role`) in what the roles before it left, all within one
domain, from narrow to wide. Roles that chose one by one can lie in more domains than all need together, so it is then
tried again in fewer of them, the roomiest, tier by tier downwards. What is found is a place, though not always in as
few domains as could be; where nothing is found the exact search still decides, so no gang that fits is refused.
"""

from collections.abc import Iterator

import numpy as np

from gantree.placement.counting.one_role import one_role_spread
from gantree.placement.members.members import placement_of
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.slots.problem import Counts, Problem, Spread
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

MOST_COMBINATIONS = 10_000
"""Ways to split a gang's roles at one node of the tree up to which tables are quick: two roles of 99 members."""

DOMAINS_TRIED = 16
"""Domains per tier that are tried, those with fewest free GPUs first."""

COUNTS_TRIED = 8
"""Numbers of domains of a tier that are tried instead of what was found, the least that have the GPUs first."""


def is_too_large_for_tables(problem: Problem) -> bool:
    """Return whether tables over all counts of all roles would take seconds; not for requests inside a node."""
    combinations = 1
    for members in problem.members:
        combinations *= members + 1
    roles = problem.request.roles
    bound_inside = problem.request.together or any(role.layers or role.shape.part for role in roles)
    return combinations > MOST_COMBINATIONS and not bound_inside


def greedy_spread(problem: Problem) -> Spread | None:
    """A spread in a domain as narrow as role after role finds one; None says nothing."""
    for tier in range(problem.fabric.node_tier, problem.request.whole_at - 1, -1):
        candidates = problem.domains_with_room(tier)
        free = problem.occupancy.free_gpus_in_domain(tier)[candidates]
        for domain in candidates[np.argsort(free, kind="stable")][:DOMAINS_TRIED].tolist():
            inside = problem.fabric.domain_of_node[tier] == domain
            spread = _role_after_role(problem, inside)
            if spread is not None:
                return _in_fewer(problem, tier, inside, spread)
    return None


def _in_fewer(problem: Problem, tier: int, inside: BoolArray, spread: Spread) -> Spread:
    """The spread, or one in fewer domains of the tiers between this one and the node; the widest count first."""
    for domain_of_node in problem.fabric.domain_of_node[tier + 1 : -1]:
        used = _used(domain_of_node, spread)
        for roomiest in _roomiest(problem, domain_of_node, inside, len(used) - 1):
            closer = _role_after_role(problem, inside & np.isin(domain_of_node, roomiest))
            if closer is not None:
                spread = closer
                break
        inside = inside & np.isin(domain_of_node, _used(domain_of_node, spread))
    return spread


def _used(domain_of_node: IntArray, spread: Spread) -> IntArray:
    used: IntArray = np.unique(domain_of_node[[node for node, _ in spread]])
    return used


def _roomiest(
    problem: Problem, domain_of_node: IntArray, inside: BoolArray, most: int
) -> Iterator[IntArray]:
    """The domains with most free GPUs: as few as have those of the gang, then one more, up to most."""
    asked = sum(
        table.shape.gpus * members
        for table, members in zip(problem.tables, problem.members, strict=True)
    )
    free_on_node = problem.occupancy.free_gpus_of_node * (inside & problem.occupancy.usable_node)
    free = np.bincount(domain_of_node, weights=free_on_node)
    order = np.argsort(-free, kind="stable")
    least = int(np.searchsorted(np.cumsum(free[order]), asked)) + 1
    for count in range(least, min(most, least + COUNTS_TRIED - 1) + 1):
        yield order[:count]


def _role_after_role(problem: Problem, inside: BoolArray) -> Spread | None:
    """A spread on these nodes, the roles with most GPUs a member first; None says nothing."""
    left = problem.occupancy.copy()
    left.usable_node &= inside
    roles = range(len(problem.members))
    counts_on_node: dict[int, list[int]] = {}
    for role in sorted(roles, key=lambda role: -problem.tables[role].shape.gpus):
        spread = _take_role(problem, role, left)
        if spread is None:
            return None
        for node, (members,) in spread:
            counts_on_node.setdefault(node, [0] * len(roles))[role] = members
    return [(node, _counts(counts_on_node[node])) for node in sorted(counts_on_node)]


def _take_role(problem: Problem, role: int, left: Occupancy) -> Spread | None:
    request = TopologyRequest((problem.request.roles[role],))
    alone = Problem.of(left, request, (problem.tables[role].shape.models,), problem.among)
    spread = one_role_spread(alone)
    if spread is not None:
        left.take(request.roles[0].name, placement_of(alone, spread).members)
    return spread


def _counts(members: list[int]) -> Counts:
    return tuple(members)
