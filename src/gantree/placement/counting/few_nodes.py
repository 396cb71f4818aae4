"""Gangs of one role inside one domain whose children are nodes: the fewest nodes, evenly filled, and of those what
strands least.

The fewest nodes are a prefix of the capacities, largest first. Members that talk are dealt out evenly: traffic that
leaves a node goes by the NICs near its GPUs that take part, so the node with fewest of them is the slowest (five and
five of ten, not eight and two). So capacities count up to the lowest *level* at which as few nodes still hold the gang;
nodes are then swapped for those with less free while the gang still fits. Counts and level are exact, the swaps greedy.
"""

from collections.abc import Mapping, Sequence

from gantree.placement.counting.room import Room
from gantree.placement.slots.gpu_splitting import IncomingMembers, split_by_one
from gantree.placement.slots.parts import is_apart
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.occupancy.occupancy import UNCOUNTED

DOMAINS_COMPARED = 4
"""Domains of equally few nodes that are compared, the fullest first, up to one that is even and leaves nothing."""

Units = list[tuple[int, int]]
"""(node index, units there), in topology order."""


def in_one_domain_of_nodes(room: Room, tier: int) -> Units:
    """The best place in one domain of the tier above the node, one of which holds the gang: fewest nodes, then, of the
    fullest domains, the most even place, then what leaves least free on the nodes.
    """
    _, candidates = room.fewest_children(tier)
    free = room.problem.occupancy.free_gpus_in_domain(tier)[candidates]
    if len(candidates) > DOMAINS_COMPARED:
        fullest = free.argpartition(DOMAINS_COMPARED)[:DOMAINS_COMPARED]
        candidates, free = candidates[fullest], free[fullest]
    free_of_node = _left_of_node(room)
    gpus = room.need * room.unit * room.table.shape.gpus
    best: Units = []
    least = (0, UNCOUNTED)
    for _, domain in sorted(zip(free.tolist(), candidates.tolist(), strict=True)):
        units = in_nodes(room, domain, room.need)
        left = int(free_of_node[[node for node, _ in units]].sum()) - gpus
        slowest = min(part for _, part in units) if room.talks else 0
        if (-slowest, left) < least:
            best, least = units, (-slowest, left)
        if left <= 0 and slowest >= room.need // len(units) * room.talks:
            break
    return best


def in_nodes(room: Room, domain: int, need: int) -> Units:
    """The fewest nodes of a domain above the node for need units, which it holds."""
    fabric = room.problem.fabric
    start, stop = fabric.first_node_of_domain[fabric.node_tier - 1][domain : domain + 2].tolist()
    capacity = room.capacity[-1][start:stop].tolist()
    free = _left_of_node(room)[start:stop].tolist()
    even = room.talks
    return [(start + place, units) for place, units in few_places(capacity, free, need, even=even)]


def _left_of_node(room: Room) -> IntArray:
    """What is free on each node; for members with parts of GPUs, what one of them breaks there."""
    problem, shape = room.problem, room.problem.request.roles[0].shape
    if not shape.part:
        return problem.occupancy.free_gpus_of_node
    incoming = IncomingMembers(shape, problem.members[0], is_apart(problem.request))
    return split_by_one(problem.occupancy, incoming, room.capacity[-1] > 0)


def spread_evenly(room: Room, units: Units) -> Units:
    """The same nodes with the units dealt out anew, as equal as their capacities allow."""
    nodes = [node for node, _ in units]
    capacity = dict(zip(nodes, room.capacity[-1][nodes].tolist(), strict=True))
    return _evenly(nodes, capacity, room.need)


def few_places(
    capacity: Sequence[int], free: Sequence[int], need: int, *, even: bool
) -> list[tuple[int, int]]:
    """(place, units) of the fewest places whose capacities hold need units, in order of places.

    Of as few places those with least free. even: as evenly as so few allow; else the first ones full.
    """
    if max(capacity) >= need:
        _, best = min((free[p], p) for p, here in enumerate(capacity) if here >= need)
        return [(best, need)]
    if sum(capacity) == need:
        return [(place, here) for place, here in enumerate(capacity) if here]
    order = sorted(range(len(capacity)), key=lambda place: (-capacity[place], free[place], place))
    chosen, held = 0, 0
    while held < need:
        held += capacity[order[chosen]]
        chosen += 1
    if even and chosen > 1:
        level = _level([capacity[place] for place in order[:chosen]], need)
        capacity = [min(here, level) for here in capacity]
        order.sort(key=lambda place: (-capacity[place], free[place], place))
        held = sum(capacity[place] for place in order[:chosen])
    if held > need or chosen < len(order):
        order = _swapped_down(order, chosen, capacity, free, held - need)
    places = sorted(order[:chosen])
    return _evenly(places, capacity, need) if even else _filled(places, capacity, need)


def _level(largest_first: Sequence[int], need: int) -> int:
    """The least level up to which places must be filled to hold need."""
    left, places = need, len(largest_first)
    for capacity in reversed(largest_first):
        level = -(-left // places)
        if capacity >= level:
            return level
        left -= capacity
        places -= 1
    raise AssertionError(f"{largest_first} do not hold {need}")


def _swapped_down(
    order: list[int], chosen: int, capacity: Sequence[int], free: Sequence[int], excess: int
) -> list[int]:
    """Replace chosen places, last first, by those that leave least free, as long as the capacity suffices."""
    taken, rest = order[:chosen], [place for place in order[chosen:] if capacity[place]]
    for position in range(chosen - 1, -1, -1):
        place = taken[position]
        least = capacity[place] - excess
        lower = [other for other in rest if capacity[other] >= least and free[other] < free[place]]
        if lower:
            better = min(lower, key=lambda other: (free[other], other))
            excess -= capacity[place] - capacity[better]
            taken[position] = better
            rest[rest.index(better)] = place
    return taken


def _filled(places: Sequence[int], capacity: Sequence[int], need: int) -> list[tuple[int, int]]:
    """Units per place in order; no place gets none, as no fewer places would do."""
    spread = []
    for place in places:
        units = min(capacity[place], need)
        spread.append((place, units))
        need -= units
    assert need == 0, "chosen places do not hold the gang"
    return spread


def _evenly(
    places: Sequence[int], capacity: Sequence[int] | Mapping[int, int], need: int
) -> list[tuple[int, int]]:
    """Units per place, as equal as capacities allow; the last of equal ones get the odd ones."""
    units_of, left = {}, len(places)
    for place in sorted(places, key=lambda place: capacity[place]):
        units_of[place] = min(capacity[place], need // left)
        need -= units_of[place]
        left -= 1
    assert need == 0, "chosen places do not hold the gang"
    return [(place, units_of[place]) for place in places]
