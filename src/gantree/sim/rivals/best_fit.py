"""Best fit: each unit goes whole into the domain with the fewest free nodes that holds it.

Where no domain holds a unit, it takes what is left of the fullest domains, one after the other.
"""

from collections.abc import Sequence

from gantree.sim.rivals.units import Units, check_room, take


def best_fit(free_nodes: Sequence[int], units: int, nodes_each: int) -> Units:
    """Place units of so many nodes. Raises ValueError where they do not fit."""
    check_room(free_nodes, units, nodes_each)
    left = list(free_nodes)
    placed = []
    for _ in range(units):
        fullest_first = sorted(range(len(left)), key=lambda domain: (left[domain], domain))
        whole = [domain for domain in fullest_first if left[domain] >= nodes_each]
        placed.append(take(left, whole or fullest_first, nodes_each))
    return placed
