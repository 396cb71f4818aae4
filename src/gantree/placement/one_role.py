"""The fast path for gangs of one role: the same exact counts as `placement.exact`, by sums and sorted capacities.

    fits one node               the node that leaves least free
    fits one domain of nodes    sorted capacities (`placement.few_nodes`)
    fits only a wider domain    tables of all domains of a tier at once (`placement.tables`)

Whether it fits at all, and from which tier on, is one comparison per tier (`placement.room`).
"""

import numpy as np

from gantree.placement.few_nodes import in_one_domain_of_nodes
from gantree.placement.problem import Problem, Spread
from gantree.placement.room import Room
from gantree.placement.tables import in_one_wide_domain
from gantree.topology.fabric import IntArray


def one_role_fits(problem: Problem) -> bool:
    """Tell whether a gang of one role has a place."""
    return Room.of(problem).tier() is not None


def one_role_spread(problem: Problem) -> Spread | None:
    """The cheapest spread of a gang of one role, or None where there is none."""
    room = Room.of(problem)
    tier = room.tier()
    if tier is None:
        return None
    candidates = np.flatnonzero(room.capacity[tier] >= room.need)
    node_tier = problem.fabric.node_tier
    if tier == node_tier:
        units = [(_tightest(problem, candidates), room.need)]
    elif tier == node_tier - 1:
        units = in_one_domain_of_nodes(room, candidates)
    else:
        units = in_one_wide_domain(room, tier, candidates)
    return [(node, (count * room.unit,)) for node, count in units]


def _tightest(problem: Problem, nodes: IntArray) -> int:
    """Of some nodes the one with fewest free GPUs, then in the fullest wider domain, then the first."""
    fabric = problem.fabric
    for tier in range(fabric.node_tier, 0, -1):
        free = problem.occupancy.free_gpus_in_domain(tier)[fabric.domain_of_node[tier][nodes]]
        nodes = nodes[free == free.min()]
        if len(nodes) == 1:
            break
    return int(nodes[0])
