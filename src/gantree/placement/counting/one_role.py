"""Gangs of one role: the same exact counts as `placement.counting.exact`, by sums and sorted capacities.

    fits one node               the node that leaves least free (`placement.counting.one_node`)
    fits one domain of nodes    sorted capacities (`placement.counting.few_nodes`)
    fits only a wider domain    tables of all domains of a tier at once (`placement.counting.tables`), or, where these
                                would be large, from domain to domain downwards (`placement.counting.descent`)

Whether it fits at all, and from which tier on, is one comparison per tier (`placement.counting.room`).
"""

from gantree.placement.counting.descent import descend
from gantree.placement.counting.few_nodes import in_one_domain_of_nodes, spread_evenly
from gantree.placement.counting.one_node import is_plain_inside, tightest_node, tightest_of
from gantree.placement.counting.room import Room
from gantree.placement.counting.tables import in_one_wide_domain, is_small
from gantree.placement.slots.problem import Problem, Spread


def one_role_fits(problem: Problem) -> bool:
    """Tell whether a gang of one role has a place."""
    return Room.of(problem).tier() is not None


def one_role_spread(problem: Problem) -> Spread | None:
    """The cheapest spread of a gang of one role, or None where there is none."""
    if is_plain_inside(problem):
        node = tightest_node(problem)
        if node is not None:
            return [(node, problem.members)]
    room = Room.of(problem)
    tier = room.tier()
    if tier is None:
        return None
    node_tier = problem.fabric.node_tier
    if tier == node_tier:
        return [(tightest_of(problem, room.capacity[tier] >= room.need), problem.members)]
    if tier == node_tier - 1:
        units = in_one_domain_of_nodes(room, tier)
    elif is_small(room, tier):
        units = in_one_wide_domain(room.capped(), tier)
    else:
        units = descend(room, tier)
    if tier < node_tier - 1 and room.plain and room.talks:
        units = spread_evenly(room, units)
    return [(node, (count * room.unit,)) for node, count in units]
