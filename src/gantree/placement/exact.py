"""The exact search: fewest domains of the widest tier, then of the next, down to the fewest nodes.

Let cost(D, x) be the least cost of putting x members (a vector: so many of each role) into domain D. A node's table
says which x it can hold. A domain's table is that of its children folded together,

    cost(D, x) = [x > 0] * unit(tier of D) + min over x = sum of x_c of the sum of cost(c, x_c),

kept only for those x that slices (a multiple in each domain) and wholeness (all of a role or none) allow. Costs are
added and compared only, so a whole lexicographic tuple lives in one 64-bit number: the count of domains of each
tier, widest tier in the highest digits, and below them, for ties, the free GPUs of the nodes used, then of the next
wider domains used: among equals a gang goes where it leaves the least behind. A digit is as wide as its count can
grow; tie digits that would not fit are rounded or left out, counts never are.

Tables are arrays over x, one axis per role, INFINITE where x does not fit. Domains whose children have the same
tables share one (a cluster holds few different nodes), so the work grows with what differs, not with what there is.
Children are folded from the last to the first and handed their parts from the first to the last, the larger part
first, so that among equals the earlier place in topology order wins.

The gang is looked for in ever wider tiers: if one domain of a tier can hold it, no wider spread can cost less.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gantree.placement.inside import Demand, choose_for_members
from gantree.placement.problem import Counts, Problem, Spread
from gantree.topology.fabric import BoolArray, IntArray
from gantree.topology.occupancy import UNCOUNTED

INFINITE = np.int64(1) << 62
DIGITS = 61
"""Bits of a cost; two costs may be added without overflow."""


def exact_spread(problem: Problem) -> Spread | None:
    """The cheapest spread, or None where there is none."""
    for tier in range(problem.fabric.node_tier, problem.wish.whole_at - 1, -1):
        candidates = problem.domains_with_room(tier)
        if len(candidates):
            spread = _cheapest(problem, tier, candidates.tolist())
            if spread is not None:
                return spread
    return None


def _cheapest(problem: Problem, tier: int, candidates: Sequence[int]) -> Spread | None:
    tables = _Tables(problem, tier)
    costs = [tables.of_domain(tier, domain).whole_gang for domain in candidates]
    best = min(range(len(costs)), key=costs.__getitem__)
    if costs[best] >= INFINITE:
        return None
    spread: Spread = []
    tables.hand_out(tier, candidates[best], problem.members, spread)
    return spread


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """cost[x] of one domain, and folded[c] = that of its children from number c on (empty for a node)."""

    cost: IntArray
    folded: tuple[IntArray, ...] = ()

    @property
    def whole_gang(self) -> int:
        return int(self.cost.flat[-1])

    def choices(self) -> Iterator[tuple[Counts, int]]:
        """Each x that fits, with its cost, smallest first."""
        for x in np.argwhere(self.cost < INFINITE):
            counts = tuple(x.tolist())
            yield counts, int(self.cost[counts])


class _Tables:
    """All tables needed to judge domains of one tier."""

    def __init__(self, problem: Problem, top: int) -> None:
        self._problem = problem
        self._shape = tuple(members + 1 for members in problem.members)
        self._x = np.indices(self._shape)
        self._some = self._x.any(axis=0)
        self._allowed = tuple(self._allowed_at(t) for t in range(problem.fabric.node_tier + 1))
        self._price = _Prices.of(problem, top)
        self._of_key: dict[object, _Table] = {}

    def of_domain(self, tier: int, domain: int) -> _Table:
        """The table of one domain, shared by all that are alike."""
        if tier == self._problem.fabric.node_tier:
            return self._of_node(domain)
        children = [self.of_domain(tier + 1, child) for child in self._children(tier, domain)]
        price = self._price.of_domain(tier, domain)
        key = (tier, price, *map(id, children))
        table = self._of_key.get(key)
        if table is None:
            table = self._of_key[key] = self._fold(tier, price, children)
        return table

    def hand_out(self, tier: int, domain: int, x: Counts, spread: Spread) -> None:
        """Append to spread where the x members of a domain go."""
        if tier == self._problem.fabric.node_tier:
            spread.append((domain, x))
            return
        folded = self.of_domain(tier, domain).folded
        for number, child in enumerate(self._children(tier, domain)):
            part = _part(self.of_domain(tier + 1, child), folded[number : number + 2], x)
            if any(part):
                self.hand_out(tier + 1, child, part, spread)
            x = tuple(all_ - mine for all_, mine in zip(x, part, strict=True))
        assert not any(x), "parts do not add up"

    def _children(self, tier: int, domain: int) -> range:
        first = self._problem.fabric.first_child_of_domain[tier]
        return range(int(first[domain]), int(first[domain + 1]))

    def _allowed_at(self, tier: int) -> BoolArray:
        wish, allowed = self._problem.wish, np.ones(self._shape, dtype=np.bool_)
        for axis, role in enumerate(wish.roles):
            x = self._x[axis]
            allowed &= x % role.multiple_in_domain[tier] == 0
            if tier and role.whole_at == tier:
                allowed &= (x == 0) | (x == role.members)
        if tier and wish.whole_at == tier:
            allowed &= ~self._some | (
                np.arange(allowed.size).reshape(self._shape) == allowed.size - 1
            )
        return allowed

    def _fold(self, tier: int, price: int, children: Sequence[_Table]) -> _Table:
        folded = [self._nothing()]
        for child in reversed(children):
            folded.append(_sum(folded[-1], child))
        folded.reverse()
        cost = np.where(self._allowed[tier] & (folded[0] < INFINITE), folded[0], INFINITE)
        cost[self._some & (cost < INFINITE)] += price
        return _Table(cost, tuple(folded))

    def _nothing(self) -> IntArray:
        cost = np.full(self._shape, INFINITE, dtype=np.int64)
        cost.flat[0] = 0
        return cost

    def _of_node(self, node: int) -> _Table:
        tier, price = (
            self._problem.fabric.node_tier,
            self._price.of_domain(self._problem.fabric.node_tier, node),
        )
        key = (price, _profile(self._problem, node))
        table = self._of_key.get(key)
        if table is None:
            fits = self._fits(node) & self._allowed[tier]
            cost = np.where(fits, np.where(self._some, np.int64(price), 0), INFINITE)
            table = self._of_key[key] = _Table(cost)
        return table

    def _fits(self, node: int) -> BoolArray:
        """Which x a node can hold: each role's slots, every resource together, and its inner tiers."""
        problem, occupancy = self._problem, self._problem.occupancy
        fits = np.ones(self._shape, dtype=np.bool_)
        for axis, table in enumerate(problem.tables):
            fits &= self._x[axis] <= table.of_node[node]
        shapes = [table.shape for table in problem.tables]
        for each, free in (
            ([s.gpus for s in shapes], occupancy.free_gpus_of_node[node]),
            ([s.microcpus for s in shapes], occupancy.free_microcpus_of_node[node]),
            ([s.memory_KiB for s in shapes], occupancy.free_memory_KiB_of_node[node]),
            ([s.nics for s in shapes], occupancy.free_nics_of_node[node]),
        ):
            fits &= np.tensordot(np.array(each, dtype=np.int64), self._x, axes=1) <= free
        if len(shapes) > 1 and any(shape.layers for shape in shapes):
            for x in np.argwhere(fits & self._some & self._allowed[problem.fabric.node_tier]):
                fits[tuple(x)] = inside_node(problem, node, tuple(x.tolist())) is not None
        return fits


def inside_node(
    problem: Problem, node: int, x: Counts
) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
    """GPUs of each member of each role on a node, or None where its inner tiers do not allow it."""
    roles = zip(x, problem.tables, problem.wish.roles, strict=True)
    return choose_for_members(
        problem.fabric.machine_of_node(node),
        problem.occupancy.free_mask_of_node[node],
        [
            Demand(members, table.shape.gpus, role.layers if table.shape.gpus else ())
            for members, table, role in roles
        ],
        problem.wish.together,
    )


def _profile(problem: Problem, node: int) -> tuple[object, ...]:
    """What makes two nodes alike for this gang."""
    slots = tuple(int(table.of_node[node]) for table in problem.tables)
    if len(slots) == 1 or not any(slots):
        return slots
    occupancy, fabric = problem.occupancy, problem.fabric
    amounts = (
        int(occupancy.free_gpus_of_node[node]),
        int(occupancy.free_microcpus_of_node[node]) % UNCOUNTED,
        int(occupancy.free_memory_KiB_of_node[node]) % UNCOUNTED,
        int(occupancy.free_nics_of_node[node]),
    )
    if any(table.shape.layers for table in problem.tables):
        machine = int(fabric.machine_index_of_node[node])
        return (*slots, *amounts, machine, occupancy.free_mask_of_node[node])
    return (*slots, *amounts)


def _sum(rest: IntArray, child: _Table) -> IntArray:
    """Least cost of each x split between one child and the rest."""
    total = np.full_like(rest, INFINITE)
    for x, cost in child.choices():
        to = tuple(slice(count, None) for count in x)
        fro = tuple(slice(0, size - count) for size, count in zip(rest.shape, x, strict=True))
        np.minimum(total[to], rest[fro] + cost, out=total[to])
    return np.minimum(total, INFINITE)


def _part(child: _Table, folded: Sequence[IntArray], x: Counts) -> Counts:
    """The largest part that a child takes of x in a cheapest split."""
    whole, rest = folded
    parts = [
        part
        for part, cost in child.choices()
        if all(mine <= all_ for mine, all_ in zip(part, x, strict=True))
        and cost + int(rest[tuple(a - m for a, m in zip(x, part, strict=True))]) == int(whole[x])
    ]
    return max(parts)


@dataclass(frozen=True, slots=True)
class _Prices:
    """price of using a domain: one count of its tier, and its share of the tie digits."""

    unit_of_tier: tuple[int, ...]
    shift_of_tier: tuple[tuple[int, int], ...]
    free_gpus: tuple[IntArray, ...]

    @classmethod
    def of(cls, problem: Problem, top: int) -> "_Prices":
        """Lay out the digits of a cost for domains of tier top and below."""
        node_tier, members = problem.fabric.node_tier, sum(problem.members)
        free = tuple(problem.occupancy.free_gpus_in_domain(t) for t in range(node_tier + 1))
        bits = [0] * top + [
            min(members, problem.fabric.domains(t)).bit_length() for t in range(top, node_tier + 1)
        ]
        left = DIGITS - sum(bits)
        assert left >= 0, f"{sum(bits)} bits of counts"
        tie_shift = [(0, -1)] * (node_tier + 1)
        below = left
        for tier in range(node_tier, top - 1, -1):
            most = (min(members, len(free[tier])) * int(free[tier].max(initial=0))).bit_length()
            width = min(most, below)
            below -= width
            tie_shift[tier] = (most - width, below if width else -1)
        units = [1 << (left + sum(bits[tier + 1 :])) for tier in range(node_tier + 1)]
        return cls(tuple(units), tuple(tie_shift), free)

    def of_domain(self, tier: int, domain: int) -> int:
        """Cost of using a domain at all."""
        down, up = self.shift_of_tier[tier]
        waste = int(self.free_gpus[tier][domain]) >> down << up if up >= 0 else 0
        return self.unit_of_tier[tier] + waste
