"""Gangs of one role that several domains of nodes share: the exact tables of `placement.counting.exact`, a tier at a
time.

Let cost(D, x) be the least cost of putting x units into domain D. All tables that some candidates need are built
together, from the nodes up: one array cost[row, x] per tier, one row per domain. Of a domain of nodes the fewest nodes
for x are counted off its capacities, largest first. A domain above is folded from its children, the last first,

    folded[c, x] = min over y of cost(c, y) + folded[c + 1, x - y],

for the c-th last child of every domain of the tier in one step, so the number of steps is that of the children of the
largest domain, not of all domains. folded[c] is kept: from the first child to the last it tells the part of each.

A cost's digits, highest first: domains of each tier below the top one; how unevenly the gang is dealt out over those of
the widest (the sum of the squares of their parts); then the free GPUs of those above the node; the last two rounded
where they would not fit. Candidates that by their capacities alone could need fewest domains are solved first,
then those that could still be better than the best of them; as a rule there are none.

Arrays have as many elements as the domains of a tier times the units that the largest of them holds; what one step adds
up in between is cut into pieces of MOST_SUMS.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gantree.placement.counting.few_nodes import Units, in_nodes
from gantree.placement.counting.room import ChildDomains, Room
from gantree.topology.fabric.fabric import IntArray

INFINITE = np.int64(1) << 61
DIGITS = 60
"""Bits of a cost below INFINITE; two costs may be added without overflow."""

MOST_SUMS = 1 << 17
"""Sums held at once while children are folded: 1 MiB, which stays in a core's cache."""

MOST_CELLS = 1 << 13
"""Cells of all tables, about, above which they are not worth a millisecond (`placement.counting.descent`)."""


def is_small(room: Room, tier: int) -> bool:
    """Whether tables of all domains from a tier down are quick to build."""
    fabric = room.problem.fabric
    return fabric.domains(fabric.node_tier - 1) * (room.need + 1) <= MOST_CELLS


def in_one_wide_domain(room: Room, tier: int) -> Units:
    """The best place in one domain of a tier of domains of domains, one of which holds the gang; of a capped room."""
    candidates = np.flatnonzero(room.capacity[tier] >= room.need)
    prices = _Prices.of(room, tier)
    least = prices.least(candidates)
    tables = _Tables(prices, candidates[least == least.min()])
    others = candidates[(least > least.min()) & (least < tables.cheapest)]
    if len(others):
        tables = min(tables, _Tables(prices, others), key=lambda tables: tables.cheapest)
    return tables.spread()


@dataclass(frozen=True, slots=True)
class _Prices:
    """What using a domain costs: unit[tier] for its count, waste[tier][domain] for what is free in it.

    uneven[x] is what x units in one domain of the widest tier cost beside that.
    """

    room: Room
    top: int
    unit: dict[int, int]
    waste: dict[int, IntArray]
    uneven: IntArray

    @classmethod
    def of(cls, room: Room, top: int) -> "_Prices":
        """Lay out the digits of a cost for what is below tier top."""
        fabric = room.problem.fabric
        tiers = range(top + 1, fabric.node_tier + 1)
        bits = {t: min(room.need, fabric.domains(t)).bit_length() for t in tiers}
        left = DIGITS - sum(bits.values())
        assert left >= 0, f"{sum(bits.values())} bits of counts"
        free = {t: room.problem.occupancy.free_gpus_in_domain(t) for t in tiers[:-1]}
        most = sum(int(free_gpus.sum()) for free_gpus in free.values()).bit_length()
        squares = (room.need**2).bit_length() if room.talks else 0
        coarse, squares = max(0, squares - left), min(squares, left)
        lost, shift, unit = max(0, most - left + squares), min(most, left - squares), {}
        parts = np.arange(room.need + 1, dtype=np.int64)
        uneven = (parts**2 >> coarse << shift) if squares else np.zeros_like(parts)
        shift += squares
        for tier in reversed(tiers):
            unit[tier] = 1 << shift
            shift += bits[tier]
        waste = {t: free_gpus >> lost for t, free_gpus in free.items()}
        return cls(room, top, unit, waste, uneven)

    def least(self, candidates: IntArray) -> IntArray:
        """least[row]: what no place in candidates[row] can undercut."""
        least = np.zeros(len(candidates), dtype=np.int64)
        for tier, unit in self.unit.items():
            least += unit * self.room.fewest(self.top, candidates, tier)
        return least

    def of_domains(self, tier: int, domains: IntArray) -> IntArray:
        """Cost of using each domain above the node at all."""
        if tier == self.top:
            return np.zeros(len(domains), dtype=np.int64)
        return self.unit[tier] + self.waste[tier][domains]


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Tables of some domains of a tier: cost[row, x], INFINITE where x does not fit.

    The children of a row are rows first[row] to stop[row] - 1 of the level below, of which folded[child] is the cost
    of a child and its later siblings together. Domains of nodes have none of the three.
    """

    domains: IntArray
    cost: IntArray
    first: IntArray
    stop: IntArray
    folded: IntArray


_NO_CHILDREN: IntArray = np.zeros(0, dtype=np.int64)


class _Tables:
    """The tables of some candidates and of all below them."""

    def __init__(self, prices: _Prices, candidates: IntArray) -> None:
        self._room, self._prices = prices.room, prices
        self._lowest = prices.room.problem.fabric.node_tier - 1
        self._levels: dict[int, _Level] = {}
        self._build(prices.top, candidates)

    @cached_property
    def cheapest(self) -> int:
        """The cost of the best place."""
        return int(self._whole_gang.min())

    def spread(self) -> Units:
        """The best place; the first of equal ones."""
        assert self.cheapest < INFINITE, "capacities say that the gang fits"
        spread: Units = []
        best = int(self._whole_gang.argmin())
        self._assign(self._prices.top, best, self._room.need, spread)
        return spread

    @property
    def _whole_gang(self) -> IntArray:
        return self._levels[self._prices.top].cost[:, self._room.need]

    def _build(self, tier: int, domains: IntArray) -> IntArray:
        """Add the levels of these domains of a tier and below; cost[row, x]."""
        if tier == self._lowest:
            cost = self._priced(tier, domains, self._of_nodes(domains))
            self._levels[tier] = _Level(domains, cost, *[_NO_CHILDREN] * 3)
            return cost
        first_child = self._room.problem.fabric.first_child_of_domain[tier]
        capacity = self._room.capacity[tier + 1]
        inside = ChildDomains.of(first_child[domains], first_child[domains + 1], capacity)
        some = inside.capacity > 0
        below = self._build(tier + 1, inside.number[some])
        rows = np.arange(len(domains))
        first, stop = (np.searchsorted(inside.row[some], rows, side) for side in ("left", "right"))
        folded = _folded(below, inside.capacity[some], first, stop, self._size(tier, domains))
        cost = self._priced(tier, domains, folded[first])
        self._levels[tier] = _Level(domains, cost, first, stop, folded)
        return cost

    def _size(self, tier: int, domains: IntArray) -> int:
        return int(self._room.capacity[tier][domains].max()) + 1

    def _of_nodes(self, domains: IntArray) -> IntArray:
        """Cost of the fewest nodes for x, before the price of their domain: one more than prefixes below x."""
        size = self._size(self._lowest, domains)
        inside = self._room.inside(self._lowest, domains, self._lowest + 1)
        place = inside.row * (size + 1) + np.minimum(inside.reached(), size - 1) + 1
        prefixes = np.bincount(place, minlength=len(domains) * (size + 1))
        nodes = 1 + np.cumsum(prefixes.reshape(len(domains), size + 1), axis=1)[:, :size]
        cost: IntArray = nodes * self._prices.unit[self._lowest + 1]
        return cost

    def _priced(self, tier: int, domains: IntArray, cost: IntArray) -> IntArray:
        """Add the price of using a domain; nothing costs nothing, too much and broken slices cannot be."""
        x = np.arange(cost.shape[1])
        price = self._prices.of_domains(tier, domains)[:, None]
        fits = x <= self._room.capacity[tier][domains][:, None]
        fits &= x % self._room.multiple[tier] == 0
        if tier == self._prices.top + 1:
            price = price + self._prices.uneven[: cost.shape[1]]
        priced = np.where(fits, np.minimum(cost + price, INFINITE), INFINITE)
        priced[:, 0] = 0
        return priced

    def _assign(self, tier: int, row: int, x: int, spread: Units) -> None:
        """Append to spread where the x units of a row go."""
        level = self._levels[tier]
        if tier == self._lowest:
            spread.extend(in_nodes(self._room, int(level.domains[row]), x))
            return
        below, last = self._levels[tier + 1].cost, int(level.stop[row]) - 1
        for child in range(int(level.first[row]), last):
            part = _part(below[child], level.folded[child], level.folded[child + 1], x)
            if part:
                self._assign(tier + 1, child, part, spread)
            x -= part
        if x:
            self._assign(tier + 1, last, x, spread)


def _folded(
    below: IntArray, capacity: IntArray, first: IntArray, stop: IntArray, size: int
) -> IntArray:
    """folded[child, x] for x < size: least cost of x in a child and its later siblings.

    A child of capacity[child] costs below[child, y]; first and stop are those of the parents.
    """
    folded = np.full((len(below), size), INFINITE)
    below = below[:, :size]
    most = below.shape[1] - 1
    folded[stop - 1, : most + 1] = below[stop - 1]
    padded = np.full((len(stop), most + size), INFINITE)
    rest_without = sliding_window_view(padded, size, axis=1)
    for back in range(2, int((stop - first).max()) + 1):
        child = stop[stop - first >= back] - back
        padded[: len(child), most:] = folded[child + 1]
        parts = min(int(capacity[child].max()), most) + 1
        cost = below[child, :parts][:, ::-1]
        folded[child] = _least_sum(rest_without[: len(child), -parts:], cost)
    return folded


def _least_sum(rest_without: IntArray, cost: IntArray) -> IntArray:
    """least[row, x]: minimum over y of rest_without[row, y, x] + cost[row, y]."""
    rows, parts, size = rest_without.shape
    least = np.full((rows, size), INFINITE)
    step = max(1, MOST_SUMS // least.size)
    for part in range(0, parts, step):
        some = slice(part, part + step)
        np.minimum(least, (rest_without[:, some] + cost[:, some, None]).min(axis=1), out=least)
    return least


def _part(child: IntArray, whole: IntArray, rest: IntArray, x: int) -> int:
    """Return the largest part of x that a child gets in a cheapest split."""
    most = min(x, len(child) - 1)
    costs = child[: most + 1] + rest[x - most : x + 1][::-1]
    return int(np.flatnonzero(costs == whole[x])[-1])
