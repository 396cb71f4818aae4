"""Random fit: any domain with room for a unit, and any nodes for members."""

from collections.abc import Sequence
from random import Random

from gantree.sim.rivals.units import Units, check_room, take


def random_fit(free_nodes: Sequence[int], units: int, nodes_each: int, rng: Random) -> Units:
    """Place each unit whole in a domain drawn from those that hold it, else over domains in a drawn order.

    Raises ValueError where they do not fit.
    """
    check_room(free_nodes, units, nodes_each)
    left = list(free_nodes)
    placed = []
    for _ in range(units):
        whole = [domain for domain, nodes in enumerate(left) if nodes >= nodes_each]
        drawn = [rng.choice(whole)] if whole else rng.sample(range(len(left)), len(left))
        placed.append(take(left, drawn, nodes_each))
    return placed


def random_nodes(slots_of_node: Sequence[int], members: int, rng: Random) -> list[tuple[int, int]]:
    """(node, members there) of members that each take any free slot, in node order.

    Raises ValueError where they do not fit.
    """
    slots = [node for node, count in enumerate(slots_of_node) for _ in range(count)]
    if len(slots) < members:
        raise ValueError(f"{members} members, but only {len(slots)} slots are free")
    drawn = rng.sample(slots, members)
    return [(node, drawn.count(node)) for node in sorted({*drawn})]
