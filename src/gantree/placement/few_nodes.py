"""Gangs of one role inside one domain whose children are nodes: the fewest nodes, and of those what strands least.

The fewest nodes are a prefix of the capacities, largest first. Counts are exact; among sets of as few nodes one is
found greedily: nodes are swapped for those with less free while the gang still fits.
"""

from collections.abc import Sequence

import numpy as np

from gantree.placement.problem import Problem
from gantree.placement.room import Room
from gantree.topology.fabric import IntArray

LEAVES_COMPARED = 8
"""Domains of equally few nodes whose leftovers are compared node by node; the fullest ones are taken."""

Units = list[tuple[int, int]]
"""(node index, units there), in topology order."""


def in_one_domain_of_nodes(room: Room, candidates: IntArray) -> Units:
    """The best place in one of these domains above the node, each of which holds the gang."""
    problem, tier = room.problem, room.problem.fabric.node_tier - 1
    fewest = room.fewest(tier, candidates, tier + 1)
    candidates = candidates[fewest == fewest.min()]
    free = problem.occupancy.free_gpus_in_domain(tier)[candidates]
    fullest_first = candidates[np.argsort(free, kind="stable")][:LEAVES_COMPARED]
    spreads = [in_nodes(room, domain, room.need) for domain in fullest_first.tolist()]
    return min(spreads, key=lambda spread: _left_free(problem, spread))


def _left_free(problem: Problem, spread: Units) -> int:
    return int(problem.occupancy.free_gpus_of_node[[node for node, _ in spread]].sum())


def in_nodes(room: Room, domain: int, need: int) -> Units:
    """The fewest nodes of a domain above the node for need units, which it holds."""
    fabric = room.problem.fabric
    start, stop = fabric.first_node_of_domain[fabric.node_tier - 1][domain : domain + 2].tolist()
    capacity = room.capacity[-1][start:stop].tolist()
    free = room.problem.occupancy.free_gpus_of_node[start:stop].tolist()
    order = sorted(range(stop - start), key=lambda place: (-capacity[place], free[place], place))
    chosen, held = 0, 0
    while held < need:
        held += capacity[order[chosen]]
        chosen += 1
    places = _swapped_down(order, chosen, capacity, free, held - need)
    return _filled(sorted(places), capacity, need, start)


def _swapped_down(
    order: list[int], chosen: int, capacity: list[int], free: list[int], excess: int
) -> list[int]:
    """Replace chosen places, last first, by those that leave least free while the capacity still suffices."""
    taken, rest = order[:chosen], [place for place in order[chosen:] if capacity[place]]
    for position in range(chosen - 1, -1, -1):
        place = taken[position]
        lower = [
            other
            for other in rest
            if capacity[place] - capacity[other] <= excess and free[other] < free[place]
        ]
        if lower:
            better = min(lower, key=lambda other: (free[other], other))
            excess -= capacity[place] - capacity[better]
            taken[position] = better
            rest[rest.index(better)] = place
    return taken


def _filled(places: Sequence[int], capacity: Sequence[int], need: int, start: int) -> Units:
    """Units per place in order; no place gets none, as no fewer places would do."""
    spread = []
    for place in places:
        units = min(capacity[place], need)
        spread.append((start + place, units))
        need -= units
    assert need == 0, "chosen nodes do not hold the gang"
    return spread
