"""Assigns units to the nodes of one domain at the least cost, exactly: for growing and shrinking in place.

`placement.counting.tables` finds a place for a whole gang among many domains, where any place of the same shape costs
the same. Here part of the gang is placed already, so each domain has a price of its own, which depends on how much of
it is used:

    cost(D, x) = price(D, x) + min over x = sum of x_c of the sum of cost(c, x_c)

Domains of one parent that cost the same are interchangeable, so only as many of them are considered as could be used:
one for each unit, and fewer if prices never rise when the units of two of them are put into one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gantree.placement.counting.least_sums import DIGITS, INFINITE, Costs, least_sum, part_of
from gantree.topology.fabric.fabric import Fabric, IntArray

Price = Callable[[int, int, IntArray], IntArray]
"""Of tier, domain and units there (rising from 1): the cost beside that of their parts, INFINITE where not allowed."""
UnitsByNode = list[tuple[int, int]]
"""(node, units there), in topology order; only nodes that get some."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitAssignment:
    """Units to be assigned to nodes, by index, each of which takes at most `most_on_node`.

    units in each domain of a tier are divisible by multiple[tier]. gathers: prices never rise where the units of two
    domains of one parent that cost the same are put into one, as far as it holds them.
    """

    fabric: Fabric
    units: int
    most_on_node: dict[int, int]
    multiple: tuple[int, ...]
    price: Price
    gathers: bool = True

    def in_domain(self, tier: int, domain: int) -> UnitsByNode | None:
        """The cheapest way within one domain; None where there is none. Of equal ones the first nodes get most."""
        first = self.fabric.first_node_of_domain[tier]
        inside = range(int(first[domain]), int(first[domain + 1]))
        nodes = [node for node in sorted(self.most_on_node) if node in inside]
        if sum(self.most_on_node[node] for node in nodes) < self.units:
            return None
        table = self._table(tier, domain, nodes)
        whole = table.costs.of
        if len(whole) <= self.units or whole[self.units] >= INFINITE:
            return None
        assigned: UnitsByNode = []
        _assign(table, self.units, assigned)
        return assigned

    def _table(self, tier: int, domain: int, nodes: Sequence[int]) -> "_Table":
        """The costs of one domain of which these nodes, at least one, take units."""
        if tier == self.fabric.node_tier:
            most = min(self.units, self.most_on_node[domain])
            return _Table(domain, self._allowed(tier, domain, np.zeros(most + 1, dtype=np.int64)))
        children = self._few_of_each(
            [self._table(tier + 1, *child) for child in self._children(tier, nodes)]
        )
        folded = [Costs.nothing(1)]
        for child in reversed(children):
            folded.append(least_sum(folded[-1], child.costs, (self.units,)))
        folded.reverse()
        return _Table(
            domain, self._allowed(tier, domain, folded[0].of), tuple(folded), tuple(children)
        )

    def _children(self, tier: int, nodes: Sequence[int]) -> list[tuple[int, list[int]]]:
        """(domain of the next tier, its nodes), in topology order."""
        domain_of_node = self.fabric.domain_of_node[tier + 1]
        children: dict[int, list[int]] = {}
        for node in nodes:
            children.setdefault(int(domain_of_node[node]), []).append(node)
        return list(children.items())

    def _allowed(self, tier: int, domain: int, sums: IntArray) -> Costs:
        """Costs of a domain whose children cost `sums`."""
        x = np.arange(1, len(sums))
        cost = sums.copy()
        cost[1:] += self.price(tier, domain, x)
        cost[1:][(cost[1:] >= INFINITE) | (x % self.multiple[tier] != 0)] = INFINITE
        return Costs(cost, closed=False).trimmed()

    def _few_of_each(self, tables: Sequence["_Table"]) -> list["_Table"]:
        """Of tables that cost the same, the first ones that could be used."""
        kept, seen = [], dict[bytes, int]()
        for table in tables:
            key, most = table.costs.of.tobytes(), len(table.costs.of) - 1
            if table.costs.nobody:
                continue
            seen[key] = seen.get(key, 0) + 1
            full = -(-self.units // most)
            if seen[key] <= (2 * full + 1 if self.gathers else self.units):
                kept.append(table)
        return kept


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The costs of one domain, and folded[c] = those of its children from number c on (empty for a node)."""

    domain: int
    costs: Costs
    folded: tuple[Costs, ...] = ()
    children: tuple["_Table", ...] = ()


def _assign(table: _Table, units: int, assigned: UnitsByNode) -> None:
    if not table.folded:
        assigned.append((table.domain, units))
        return
    for number, child in enumerate(table.children):
        whole, rest = table.folded[number : number + 2]
        if whole is rest:
            continue
        (part,) = part_of(rest.of, child.costs.of, (units,), int(whole.of[units]))
        if part:
            _assign(child, part, assigned)
            units -= part
    assert not units, "parts do not add up"


def digits(most: Sequence[int]) -> list[int]:
    """What one of each count weighs, so that sums of them compare as their first counts do, then as the next.

    most is the largest that each count becomes, the weightiest first. Of what does not fit into a cost the last counts
    weigh nothing.
    """
    widths = [count.bit_length() for count in most]
    fits = [number for number in range(len(widths)) if sum(widths[: number + 1]) <= DIGITS]
    assert fits or not most, f"a count up to {most[0]} fits no cost"
    return [
        1 << sum(widths[number + 1 : len(fits)]) if number < len(fits) else 0
        for number in range(len(widths))
    ]
