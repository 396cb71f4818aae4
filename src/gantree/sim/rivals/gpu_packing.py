"""GPU packing: GPUs of the fullest nodes are used first, whatever the groups of their ranks.

Node by node the gang goes to the domain with the fewest free nodes that has any, so a unit is cut wherever a domain is
full.
"""

from collections.abc import Sequence

from gantree.sim.rivals.units import Units, check_room, take


def gpu_packing(free_nodes: Sequence[int], units: int, nodes_each: int) -> Units:
    """Place units of so many nodes. Raises ValueError where they do not fit."""
    check_room(free_nodes, units, nodes_each)
    left = list(free_nodes)
    fullest_first = sorted(range(len(left)), key=lambda domain: (left[domain], domain))
    nodes = take(left, fullest_first, units * nodes_each)
    return [nodes[first : first + nodes_each] for first in range(0, len(nodes), nodes_each)]
