"""Gangs of one role on large fabrics that several domains of nodes share: from domain to domain downwards.

The domain is, of those that hold the gang in the fewest children by their capacities, the one with fewest free GPUs; in
it the fewest children are chosen, and of those the ones with least free; and so on in each of them with its part, down
to the nodes. So the count of the widest tier that is split is exact, and those below it are as few as the choice above
them leaves; `placement.counting.tables` would weigh all tiers against each other, in a hundred times the time, and does
so wherever that is quick. At the widest split the parts are dealt out evenly where that uses no more domains below than
filling one child after the other.

What is needed of the one domain is made into lists first: its children, their children and so on are slices of these.
"""

from dataclasses import dataclass
from typing import Self

from gantree.placement.counting.few_nodes import Units, few_places
from gantree.placement.counting.room import Room


def descend(room: Room, tier: int) -> Units:
    """A place in one domain of a tier of domains of domains, one of which holds the gang."""
    _, candidates = room.fewest_children(tier)
    free = room.problem.occupancy.free_gpus_in_domain(tier)[candidates]
    domain = int(candidates[free.argmin()])
    levels = _levels(room, tier, domain)
    filled = _in_domain(levels, 0, domain, room.need, even=False)
    if not room.talks:
        return filled
    evenly = _in_domain(levels, 0, domain, room.need, even=True)
    return min(evenly, filled, key=lambda units: _domains(levels, units))


@dataclass(frozen=True, slots=True)
class _Level:
    """The domains of one tier inside the chosen one, from number `start` on.

    Children of the domain start + i are children[i] to children[i + 1] - 1 of the next level; the last has none. Units
    come in multiples of size.
    """

    start: int
    capacity: list[int]
    free: list[int]
    children: list[int]
    size: int

    @classmethod
    def of(cls, room: Room, tier: int, start: int, stop: int) -> Self:
        """The domains start to stop - 1 of a tier."""
        fabric = room.problem.fabric
        below = tier < fabric.node_tier
        first = fabric.first_child_of_domain[tier][start : stop + 1].tolist() if below else []
        free = room.problem.occupancy.free_gpus_in_domain(tier)
        return cls(
            start,
            room.capacity[tier][start:stop].tolist(),
            free[start:stop].tolist(),
            first,
            room.multiple[tier],
        )


def _levels(room: Room, tier: int, domain: int) -> list[_Level]:
    levels = [_Level.of(room, tier, domain, domain + 1)]
    for below in range(tier + 1, room.problem.fabric.node_tier + 1):
        children = levels[-1].children
        levels.append(_Level.of(room, below, children[0], children[-1]))
    return levels


def _in_domain(levels: list[_Level], depth: int, domain: int, need: int, *, even: bool) -> Units:
    """Units by node of a domain of the level `depth`."""
    level = levels[depth]
    if not level.children:
        return [(domain, need)]
    below = levels[depth + 1]
    start, stop = level.children[domain - level.start : domain - level.start + 2]
    inside = slice(start - below.start, stop - below.start)
    capacity, size = below.capacity[inside], below.size
    if size > 1:
        capacity = [here // size for here in capacity]
    last = not below.children
    parts = few_places(capacity, below.free[inside], need // size, even=even or last)
    if last:
        return [(start + place, part * size) for place, part in parts]
    units: Units = []
    for place, part in parts:
        units += _in_domain(levels, depth + 1, start + place, part * size, even=False)
    return units


def _domains(levels: list[_Level], units: Units) -> tuple[int, ...]:
    """How many domains of each level are used, widest first."""
    counts: list[int] = [len(units)]
    used = [node for node, _ in units]
    for level in reversed(levels[1:-1]):
        bounds, place = level.children, 0
        places: list[int] = []
        for number in used:
            while bounds[place + 1] <= number:
                place += 1
            if not places or places[-1] != level.start + place:
                places.append(level.start + place)
        used = places
        counts.append(len(used))
    return tuple(reversed(counts))
