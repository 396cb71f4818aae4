"""The exact search: fewest domains of the widest tier, then of the next, down to the fewest nodes.

Let cost(D, x) be the least cost of putting x members (a vector: so many of each role) into domain D. A node's table
says which x it can hold. A domain's table is that of its children folded together,

    cost(D, x) = [x > 0] * unit(tier of D) + min over x = sum of x_c of the sum of cost(c, x_c),

kept only for those x that slices (a multiple in each domain), spreading (a most in each domain) and wholeness (all of a
role or none) allow. Costs are added and compared only, so a whole lexicographic tuple lives in one 64-bit number
(`placement.counting.spread_prices`): the count of domains of each tier, and below, for ties, what is left behind.

Tables are arrays over x, one axis per role (`placement.counting.least_sums`). Domains whose children have the same
tables share one (a cluster holds few different nodes), so the work grows with what differs, not with what there is.
Children are folded from the last to the first and handed their parts from the first to the last, the larger part first,
so that among equals the earlier place in topology order wins.

The gang is looked for in ever wider tiers: if one domain of a tier can hold it, no wider spread can cost less.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gantree.placement.counting.least_sums import INFINITE, Costs, least_sum, part_of, up_to
from gantree.placement.counting.spread_prices import Prices
from gantree.placement.members.on_node import inside_node
from gantree.placement.scoring.simplex import FloatArray
from gantree.placement.slots.problem import Counts, Problem, Spread
from gantree.topology.fabric.fabric import BoolArray, IntArray
from gantree.topology.occupancy.occupancy import UNCOUNTED


def exact_spread(problem: Problem) -> Spread | None:
    """The cheapest spread, or None where there is none."""
    for tier in range(problem.fabric.node_tier, problem.request.whole_at - 1, -1):
        candidates = problem.domains_with_room(tier)
        if len(candidates):
            spread = _cheapest(problem, tier, candidates.tolist())
            if spread is not None:
                return spread
    return None


def _cheapest(problem: Problem, tier: int, candidates: Sequence[int]) -> Spread | None:
    tables = _Tables(problem, tier)
    costs = [tables.whole_gang(tier, domain) for domain in candidates]
    best = min(range(len(costs)), key=costs.__getitem__)
    if costs[best] >= INFINITE:
        return None
    spread: Spread = []
    tables.assign(tier, candidates[best], problem.members, spread)
    return spread


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The costs of one domain, and folded[c] = those of its children from number c on (empty for a node)."""

    costs: Costs
    folded: tuple[Costs, ...] = ()


class _Tables:
    """All tables needed to judge domains of one tier."""

    def __init__(self, problem: Problem, top: int) -> None:
        self._problem = problem
        self._shape = tuple(members + 1 for members in problem.members)
        self._x = np.indices(self._shape)
        self._some: BoolArray = self._x.sum(axis=0) > 0
        self._allowed = tuple(self._allowed_at(t) for t in range(problem.fabric.node_tier + 1))
        self._closed = tuple(self._closed_at(t) for t in range(problem.fabric.node_tier + 1))
        self._sums = problem.sums
        self._bound_inside = _is_bound_inside(problem)
        self._nothing = Costs.nothing(len(problem.members))
        self._price = Prices.of(problem, top)
        self._profile_of_node = _profiles(problem, self._sums)
        self._of_key: dict[object, _Table] = {}
        self._of_domain: dict[tuple[int, int], _Table] = {}
        self._sum_of: dict[tuple[int, int], Costs] = {}

    def whole_gang(self, tier: int, domain: int) -> int:
        """The least cost of the whole gang in one domain, INFINITE or more where it does not fit."""
        cost = self.of_domain(tier, domain).costs.of
        return int(cost.flat[-1]) if cost.shape == self._shape else int(INFINITE)

    def of_domain(self, tier: int, domain: int) -> _Table:
        """Return the table of one domain; equal domains share it."""
        if tier == self._problem.fabric.node_tier:
            return self._of_node(domain)
        table = self._of_domain.get((tier, domain))
        if table is None:
            children = [self.of_domain(tier + 1, child) for child in self._children(tier, domain)]
            price = self._price.of_domain(tier, domain)
            key = (tier, price, *map(id, children))
            table = self._of_key.get(key)
            if table is None:
                table = self._of_key[key] = self._fold(tier, price, children)
            self._of_domain[tier, domain] = table
        return table

    def assign(self, tier: int, domain: int, x: Counts, spread: Spread) -> None:
        """Append to spread where the x members of a domain go."""
        if tier == self._problem.fabric.node_tier:
            spread.append((domain, x))
            return
        folded = self.of_domain(tier, domain).folded
        for number, child in enumerate(self._children(tier, domain)):
            whole, rest = folded[number], folded[number + 1]
            if whole is rest:
                continue
            cost = self.of_domain(tier + 1, child).costs.of
            part = part_of(rest.of, cost, x, int(whole.of[x]))
            if any(part):
                self.assign(tier + 1, child, part, spread)
                x = tuple(all_ - mine for all_, mine in zip(x, part, strict=True))
        assert not any(x), "parts do not add up"

    def _children(self, tier: int, domain: int) -> range:
        first = self._problem.fabric.first_child_of_domain[tier]
        return range(int(first[domain]), int(first[domain + 1]))

    def _allowed_at(self, tier: int) -> BoolArray:
        request, allowed = self._problem.request, np.ones(self._shape, dtype=np.bool_)
        for axis, role in enumerate(request.roles):
            x = self._x[axis]
            allowed &= x % role.multiple_in_domain[tier] == 0
            if role.is_limited:
                allowed &= x <= role.most_in_domain[tier]
            if tier and role.whole_at == tier:
                allowed &= (x == 0) | (x == role.members)
        if tier and request.whole_at == tier:
            allowed &= ~self._some | (
                np.arange(allowed.size).reshape(self._shape) == allowed.size - 1
            )
        return allowed

    def _closed_at(self, tier: int) -> bool:
        """Whether a domain of a tier may always hold fewer: neither slices nor wholeness forbid it."""
        request = self._problem.request
        return request.whole_at != tier and all(
            role.multiple_in_domain[tier] == 1 and role.whole_at != tier for role in request.roles
        )

    def _fold(self, tier: int, price: int, children: Sequence[_Table]) -> _Table:
        folded = [self._nothing]
        for child in reversed(children):
            folded.append(self._sum(folded[-1], child.costs))
        folded.reverse()
        whole = folded[0]
        here = up_to(whole.of.shape)
        cost = np.where(self._allowed[tier][here], whole.of, INFINITE)
        cost[self._some[here] & (cost < INFINITE)] += price
        closed = whole.closed and self._closed[tier]
        return _Table(Costs(cost, closed).trimmed(), tuple(folded))

    def _sum(self, rest: Costs, child: Costs) -> Costs:
        """Least cost of each x split between one child and the rest; equal sums are added once."""
        if child.nobody:
            return rest
        key = (id(rest), id(child))
        total = self._sum_of.get(key)
        if total is None:
            total = self._sum_of[key] = least_sum(rest, child, self._problem.members)
        return total

    def _of_node(self, node: int) -> _Table:
        tier = self._problem.fabric.node_tier
        price = self._price.of_domain(tier, node)
        key = (price, self._profile_of_node[node])
        table = self._of_key.get(key)
        if table is None:
            fits, cut_s = self._fits(node)
            here = up_to(fits.shape)
            fits &= self._allowed[tier][here]
            cost = np.where(self._some[here], np.int64(price), 0) + self._price.of_cuts(cut_s)
            for role in self._price.servers:
                cost[self._x[role][here] > 0] += self._price.nics_short_of_node[node]
            cost = np.where(fits, cost, INFINITE)
            closed = self._closed[tier] and not self._bound_inside
            table = self._of_key[key] = _Table(Costs(cost, closed).trimmed())
        return table

    def _fits(self, node: int) -> tuple[BoolArray, FloatArray]:
        """Which x, up to each role's slots, a node can hold: every resource together, and its inner tiers.

        With it the seconds until the GPUs of the node are cut for them.
        """
        problem = self._problem
        most = [
            min(members, int(table.of_node[node]))
            for members, table in zip(problem.members, problem.tables, strict=True)
        ]
        x = self._x[(slice(None), *(slice(count + 1) for count in most))]
        fits = np.ones(x.shape[1:], dtype=np.bool_)
        for each, free in self._sums:
            fits &= np.tensordot(each, x, axes=1) <= free[node]
        cut_s = np.zeros(fits.shape)
        if self._bound_inside:
            here = up_to(fits.shape)
            for counts in np.argwhere(fits & self._some[here] & self._allowed[-1][here]):
                inside = inside_node(problem, node, tuple(counts.tolist()))
                fits[tuple(counts)] = inside is not None
                cut_s[tuple(counts)] = 0.0 if inside is None else inside.cut_s
        return fits, cut_s


def _is_bound_inside(problem: Problem) -> bool:
    """Whether members of several roles on a node are more than sums: by inner tiers, parts of GPUs or NUMA nodes."""
    shapes = [role.shape for role in problem.request.roles]
    inner = any(table.shape.layers for table in problem.tables)
    return len(shapes) > 1 and (inner or any(shape.part or shape.memory_GBps for shape in shapes))


def _profiles(problem: Problem, sums: Sequence[tuple[IntArray, IntArray]]) -> list[Hashable]:
    """Return keys by node, equal for nodes that are equal for this gang."""
    columns: list[list[Any]] = [table.of_node.tolist() for table in problem.tables]
    if len(columns) > 1:
        columns += [(free % UNCOUNTED).tolist() for _, free in sums]
        if _is_bound_inside(problem):
            columns.append(_insides(problem))
    return list(zip(*columns, strict=True))


def _insides(problem: Problem) -> list[Hashable]:
    """Return, by node, its machine and the free state of its GPUs and NUMA nodes; None if no member fits."""
    occupancy, fabric = problem.occupancy, problem.fabric
    parts = any(role.shape.part for role in problem.request.roles)
    some = np.logical_or.reduce([table.of_node > 0 for table in problem.tables])
    insides: list[Hashable] = [None] * len(some)
    for node in np.flatnonzero(some).tolist():
        cut = parts or node in occupancy.parts_of_node
        insides[node] = (
            int(fabric.machine_index_of_node[node]),
            occupancy.free_mask_of_node[node],
            occupancy.state_of_node(node) if cut else None,
            occupancy.host.numa_of_node.get(node),
        )
    return insides
