"""The fast path for gangs of one role: the same exact counts as `placement.exact`, by sums and sorted capacities.

With one role the members that fit a domain are the multiples of its slice size up to a capacity, and capacities add
up: a domain's is the sum of its children's, rounded down to whole slices. So whether a gang fits is one comparison
per tier, and the fewest nodes for x members in a domain of nodes is the length of the shortest prefix of its
capacities, largest first, that reaches x. Only where several domains of nodes share a gang is something folded: the
tables fewest(D, x) of the children, one vector each, exactly as in `placement.exact`.

Members are counted in units of the slice that must share a node (1 without such slices). Counts are exact; among
places of equal counts the node sets are found greedily: capacities are swapped down while the gang still fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gantree.placement.problem import Problem, Spread
from gantree.topology.fabric import Fabric, IntArray

INFINITE = np.int64(1) << 61
LEAVES_COMPARED = 8
"""Domains of equally few nodes whose leftovers are compared node by node; the fullest ones are taken."""


@dataclass(frozen=True, slots=True)
class _Capacity:
    """A gang and the room for it, in units: capacity[tier][domain], never more than need."""

    problem: Problem
    unit: int
    need: int
    narrowest: int
    multiple: tuple[int, ...]
    capacity: tuple[IntArray, ...]

    @classmethod
    def of(cls, problem: Problem) -> "_Capacity":
        fabric, role = problem.fabric, problem.wish.roles[0]
        unit = role.multiple_in_domain[fabric.node_tier]
        need = problem.members[0] // unit
        multiple = tuple(m // unit for m in role.multiple_in_domain)
        in_tier = [np.minimum(problem.tables[0].of_node // unit, need)]
        for tier in range(fabric.node_tier - 1, -1, -1):
            sums = np.add.reduceat(in_tier[-1], fabric.first_child_of_domain[tier][:-1])
            if multiple[tier] > 1:
                sums -= sums % multiple[tier]
            in_tier.append(np.minimum(sums, need))
        whole_at = max(problem.wish.whole_at, role.whole_at)
        return cls(problem, unit, need, whole_at, multiple, tuple(reversed(in_tier)))

    def tier(self) -> int | None:
        """The narrowest tier of which one domain holds the gang."""
        for tier in range(len(self.capacity) - 1, self.narrowest - 1, -1):
            if int(self.capacity[tier].max()) >= self.need:
                return tier
        return None


def one_role_fits(problem: Problem) -> bool:
    """Tell whether a gang of one role has a place."""
    return _Capacity.of(problem).tier() is not None


def one_role_spread(problem: Problem) -> Spread | None:
    """The cheapest spread of a gang of one role, or None where there is none."""
    room = _Capacity.of(problem)
    tier = room.tier()
    if tier is None:
        return None
    candidates = np.flatnonzero(room.capacity[tier] >= room.need)
    node_tier = problem.fabric.node_tier
    if tier == node_tier:
        units = [(_tightest(problem, candidates, tier), room.need)]
    elif tier == node_tier - 1:
        units = _in_one_domain_of_nodes(room, candidates)
    else:
        units = _in_one_wide_domain(room, tier, candidates)
    return [(node, (count * room.unit,)) for node, count in units]


def _tightest(problem: Problem, candidates: IntArray, tier: int) -> int:
    """Of domains of a tier the one with fewest free GPUs, then in the fullest wider domain, then the first."""
    nodes = problem.fabric.first_node_of_domain[tier][candidates]
    for wider in range(tier, 0, -1):
        free = problem.occupancy.free_gpus_in_domain(wider)[
            problem.fabric.domain_of_node[wider][nodes]
        ]
        nodes, candidates = nodes[free == free.min()], candidates[free == free.min()]
        if len(nodes) == 1:
            break
    return int(candidates[0])


# ----- domains whose children are nodes


def _in_one_domain_of_nodes(room: _Capacity, candidates: IntArray) -> list[tuple[int, int]]:
    problem, tier = room.problem, room.problem.fabric.node_tier - 1
    fewest = _fewest_nodes(problem.fabric, room.capacity[-1], candidates, room.need)
    candidates = candidates[fewest == fewest.min()]
    free = problem.occupancy.free_gpus_in_domain(tier)[candidates]
    fullest_first = candidates[np.argsort(free, kind="stable")][:LEAVES_COMPARED]
    spreads = [_in_nodes(room, domain, room.need) for domain in fullest_first.tolist()]
    return min(spreads, key=lambda spread: _left_free(problem, spread))


def _left_free(problem: Problem, spread: Sequence[tuple[int, int]]) -> int:
    return int(problem.occupancy.free_gpus_of_node[[node for node, _ in spread]].sum())


def _fewest_nodes(fabric: Fabric, capacity: IntArray, domains: IntArray, need: int) -> IntArray:
    """Fewest nodes of each domain that hold need units; each domain can."""
    nodes = _nodes_in_domain(fabric)[domains]
    largest_first = -np.sort(-np.append(capacity, 0)[nodes], axis=1)
    enough: IntArray = (np.cumsum(largest_first, axis=1) < need).sum(axis=1) + 1
    return enough


def _nodes_in_domain(fabric: Fabric) -> IntArray:
    """Matrix [domain][place] of the nodes of each domain above the node; missing ones point behind the last node."""
    first = fabric.first_node_of_domain[fabric.node_tier - 1]
    places = np.arange(int(np.diff(first).max()))
    nodes: IntArray = first[:-1, None] + places
    return np.where(nodes < first[1:, None], nodes, len(fabric.nodes))


def _in_nodes(room: _Capacity, domain: int, need: int) -> list[tuple[int, int]]:
    """(node, units) of the fewest nodes of a domain for need units, in node order."""
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


def _filled(places: list[int], capacity: list[int], need: int, start: int) -> list[tuple[int, int]]:
    """Units per place in order; no place gets none, as no fewer places would do."""
    spread = []
    for place in places:
        units = min(capacity[place], need)
        spread.append((start + place, units))
        need -= units
    assert need == 0, "chosen nodes do not hold the gang"
    return spread


# ----- domains of domains


def _in_one_wide_domain(room: _Capacity, tier: int, candidates: IntArray) -> list[tuple[int, int]]:
    """The best of the candidates, those that could be best first; the rest is not looked at."""
    bounds = sorted((_bound(room, tier, domain), domain) for domain in candidates.tolist())
    tables = _Tables(room, tier)
    best: tuple[int, int] | None = None
    for bound, domain in bounds:
        if best is not None and best[0] <= tables.least(bound):
            break
        cost = int(tables.of_domain(tier, domain).cost[room.need])
        if cost < INFINITE and (best is None or cost < best[0]):
            best = (cost, domain)
    assert best is not None, "capacities say that the gang fits"
    spread: list[tuple[int, int]] = []
    tables.hand_out(tier, best[1], room.need, spread)
    return spread


def _bound(room: _Capacity, tier: int, domain: int) -> tuple[int, ...]:
    """At least so many domains of each narrower tier: shortest prefixes of all their capacities."""
    fabric = room.problem.fabric
    start, stop = fabric.first_node_of_domain[tier][domain : domain + 2].tolist()
    bound = []
    for below in range(tier + 1, fabric.node_tier + 1):
        inside = fabric.domain_of_node[below]
        capacity = room.capacity[below][inside[start] : inside[stop - 1] + 1]
        reached = np.cumsum(-np.sort(-capacity))
        bound.append(int(np.searchsorted(reached, room.need)) + 1)
    return tuple(bound)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """cost[x] for 0..capacity, and folded[c] = that of its children from number c on."""

    cost: IntArray
    folded: tuple[IntArray, ...] = ()


class _Tables:
    """cost(D, x) of domains above the node, for x from 0 to need.

    A cost's digits, highest first: domains of each tier below the top one, then free GPUs of those above the node.
    """

    def __init__(self, room: _Capacity, top: int) -> None:
        self._room, self._fabric, self._top = room, room.problem.fabric, top
        tiers = range(top + 1, self._fabric.node_tier + 1)
        self._free = {t: room.problem.occupancy.free_gpus_in_domain(t) for t in tiers}
        waste_bits = (int(self._free[self._fabric.node_tier].sum()) * len(tiers)).bit_length()
        self._unit: dict[int, int] = {}
        shift = waste_bits
        for tier in reversed(tiers):
            self._unit[tier] = 1 << shift
            shift += min(room.need, self._fabric.domains(tier)).bit_length()
        assert shift <= 60, f"{shift} bits of counts"
        self._of: dict[tuple[int, int], _Table] = {}

    def least(self, bound: tuple[int, ...]) -> int:
        """The cost that no place of at least so many domains per tier can undercut."""
        tiers = range(self._top + 1, self._fabric.node_tier + 1)
        return sum(self._unit[tier] * count for tier, count in zip(tiers, bound, strict=True))

    def of_domain(self, tier: int, domain: int) -> _Table:
        """The table of a domain above the node."""
        key = (tier, domain)
        if key not in self._of:
            node_parent = tier == self._fabric.node_tier - 1
            self._of[key] = self._of_nodes(domain) if node_parent else self._fold(tier, domain)
        return self._of[key]

    def hand_out(self, tier: int, domain: int, x: int, spread: list[tuple[int, int]]) -> None:
        """Append to spread where the x units of a domain go."""
        if tier == self._fabric.node_tier - 1:
            spread.extend(_in_nodes(self._room, domain, x))
            return
        folded = self.of_domain(tier, domain).folded
        for number, child in enumerate(self._children(tier, domain)):
            if self._room.capacity[tier + 1][child]:
                part = _part(
                    self.of_domain(tier + 1, child).cost, folded[number], folded[number + 1], x
                )
                if part:
                    self.hand_out(tier + 1, child, part, spread)
                x -= part
        assert x == 0, "parts do not add up"

    def _children(self, tier: int, domain: int) -> range:
        first = self._fabric.first_child_of_domain[tier]
        return range(int(first[domain]), int(first[domain + 1]))

    def _of_nodes(self, domain: int) -> _Table:
        tier = self._fabric.node_tier - 1
        start, stop = self._fabric.first_node_of_domain[tier][domain : domain + 2].tolist()
        reached = np.cumsum(-np.sort(-self._room.capacity[-1][start:stop]))
        x = np.arange(int(self._room.capacity[tier][domain]) + 1)
        nodes = np.searchsorted(reached, x) + 1
        return _Table(self._priced(tier, domain, nodes * self._unit[self._fabric.node_tier]))

    def _fold(self, tier: int, domain: int) -> _Table:
        rest = np.full(self._room.need + 1, INFINITE, dtype=np.int64)
        rest[0] = 0
        folded = [rest]
        for child in reversed(self._children(tier, domain)):
            if self._room.capacity[tier + 1][child]:
                rest = _sum(rest, self.of_domain(tier + 1, child).cost)
            folded.append(rest)
        folded.reverse()
        cost = rest[: int(self._room.capacity[tier][domain]) + 1]
        return _Table(self._priced(tier, domain, cost), tuple(folded))

    def _priced(self, tier: int, domain: int, cost: IntArray) -> IntArray:
        """Add the price of using the domain at all; nothing costs nothing, broken slices cannot be."""
        priced = cost + (
            0 if tier == self._top else self._unit[tier] + int(self._free[tier][domain])
        )
        priced[np.arange(len(priced)) % self._room.multiple[tier] > 0] = INFINITE
        priced[0] = 0
        return np.minimum(priced, INFINITE)


def _sum(rest: IntArray, child: IntArray) -> IntArray:
    """Least cost of each x split between one child and the rest."""
    before = np.full(len(child) - 1, INFINITE, dtype=np.int64)
    windows = sliding_window_view(np.concatenate((before, rest)), len(child))
    total: IntArray = np.minimum((windows + child[::-1]).min(axis=1), INFINITE)
    return total


def _part(child: IntArray, whole: IntArray, rest: IntArray, x: int) -> int:
    """The largest part that a child takes of x in a cheapest split."""
    most = min(x, len(child) - 1)
    costs = child[: most + 1] + rest[x - most : x + 1][::-1]
    return int(np.flatnonzero(costs == whole[x])[-1])
