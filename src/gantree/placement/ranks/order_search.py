"""Searches the cheapest order of the ranks of a gang. `rank_order` describes candidates and objective.

An order is position_of_rank[rank], over the positions of `gang_gpus`. Many orders are priced at a time.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations, permutations

import numpy as np

from gantree.placement.ranks.gang_gpus import GangGpus
from gantree.placement.ranks.layouts import GridLayout, axis_orders, levels_that_divide
from gantree.placement.ranks.near_groups import GroupSpread
from gantree.topology.cost.pricing import pricer_of
from gantree.topology.cost.step_orders import OrderSteps, StepOfOrders
from gantree.topology.fabric.fabric import Fabric, IntArray

MOST_RANKS_PRICED = 24_000
"""Ranks in all orders that are priced at once, layouts and exchanges alike: some 40 ms."""
LEAST_ORDERS = 3
MOST_AXIS_ORDERS = 24
ALL_ORDERS_OF_MEMBERS = 6
"""Members of which every order is tried: 720 at most."""
MOST_EXCHANGES = 8
WORTH_EXCHANGING = 0.005
"""Share of the step: exchanges are tried where an order as good along every axis as the best so far along each alone
would gain this much."""
_CHEAPER = 1 - 1e-9
"""What counts as cheaper: not the last digits of a sum."""
_LESS_SPREAD = 1 - 1e-3
"""What counts as fewer slow groups among orders of equal step; they load the links of others."""


class RankSearch:
    """The search for the cheapest order of one gang. An order is position_of_rank[rank].

    group_spread counts orders where the job weighs groups: then only those of its least cost are priced.
    """

    def __init__(
        self,
        fabric: Fabric,
        gang_gpus: GangGpus,
        steps: StepOfOrders,
        group_spread: GroupSpread | None = None,
    ) -> None:
        self.fabric = fabric
        self.group_spread = group_spread
        self.gang_gpus = gang_gpus
        self.steps = steps
        self.plain = np.arange(len(gang_gpus), dtype=np.int64)
        self.first_of_member = gang_gpus.first_of_member
        self.gpus_of_member = np.diff(np.append(self.first_of_member, len(gang_gpus)))
        self.plain_step_s = self.best_step_s = self.best_spread_s = 0.0
        self.fits = True

    def best(self) -> IntArray:
        """The cheapest order; of equals topology order, then one of whole members."""
        orders = self._distinct([self.plain, *self._member_orders(), *self._layouts()])
        if self.group_spread is not None:
            orders = orders[self.group_spread.least(orders)]
        priced = self.steps.price(orders)
        self.plain_step_s = float(self._plain_of(orders, priced).step_s[0])
        chosen = _best(priced)
        self.best_step_s = float(priced.step_s[chosen])
        self.best_spread_s = float(priced.spread_s[chosen])
        best: IntArray = orders[chosen]
        along = priced.exposed_s
        to_gain_s = float((along[chosen] - along.min(axis=0)).sum())
        few = len(self.first_of_member) <= ALL_ORDERS_OF_MEMBERS
        settled = (
            few or to_gain_s < WORTH_EXCHANGING * self.best_step_s or self.group_spread is not None
        )
        return best if settled or self._regular() else self._exchanged(best)

    def _plain_of(self, orders: IntArray, priced: OrderSteps) -> OrderSteps:
        """The price of topology order, which is the first unless it was left out."""
        is_first = (orders[0] == self.plain).all()
        return priced if is_first else self.steps.price(self.plain[None])

    def _distinct(self, orders: Sequence[IntArray]) -> IntArray:
        return np.stack(list({order.tobytes(): order for order in orders}.values()))

    # ----- whole members

    def _member_orders(self) -> Iterator[IntArray]:
        """Every order of a few members, one of those that look alike."""
        members = len(self.first_of_member)
        if not 1 < members <= ALL_ORDERS_OF_MEMBERS:
            return
        shapes = pricer_of(self.fabric).shapes
        nodes = self.gang_gpus.node[self.first_of_member].tolist()
        runs = [self._positions_of(member) for member in range(members)]
        gpus = [tuple(self.gang_gpus.gpu[run].tolist()) for run in runs]
        seen: set[Hashable] = set()
        for order in permutations(range(members)):
            looks = (shapes.shape([nodes[m] for m in order]), tuple(gpus[m] for m in order))
            if looks not in seen and self._keeps_roles(order):
                seen.add(looks)
                yield np.concatenate([runs[member] for member in order])

    def _positions_of(self, member: int) -> IntArray:
        first = self.first_of_member[member]
        return self.plain[first : first + self.gpus_of_member[member]]

    def _keeps_roles(self, order: Sequence[int]) -> bool:
        role = self.gang_gpus.role[self.first_of_member]
        return bool((role[list(order)] == role).all())

    # ----- layouts

    def _layouts(self) -> Iterator[IntArray]:
        """The grid laid over whole members, then over single GPUs, as far as these are free to move."""
        grid = self.steps.degrees.grid
        orders = axis_orders(grid, self._near_first(), self._most_axis_orders())
        domain = self.gang_gpus.domains(self.fabric)
        laid: set[bytes] = set()
        if len({*self.gpus_of_member.tolist()}) == 1:
            for order in orders:
                for found in self._laid_over(self.first_of_member, domain, grid, order):
                    laid.add(found.tobytes())
                    yield found
            yield from self._in_parts(self.first_of_member, domain, grid)
        if self.gang_gpus.processes_alone:
            for order in orders:
                over = self._laid_over(self.plain, domain, grid, order)
                in_a_row = next(over)
                if in_a_row.tobytes() not in laid:  # else it lays whole members, as above
                    yield in_a_row
                    yield from over
            yield from self._in_parts(self.plain, domain, grid)

    def _laid_over(
        self, first: IntArray, domain: IntArray, grid: Mapping[str, int], order: Sequence[str]
    ) -> Iterator[IntArray]:
        """The grid in one order of axes over runs of positions that begin with `first`: in a row, then packed."""
        size = len(self.plain) // len(first)
        place = np.lexsort(domain[::-1, first])
        layout = GridLayout.of(grid, order, first)
        row = layout.in_a_row()
        yield self._in_roles(first[place[row]], size)
        packed = layout.packed(levels_that_divide(domain[:, first[place]]))
        self.fits &= bool((row == packed).all())
        yield self._in_roles(first[place[packed]], size)

    def _in_parts(
        self, first: IntArray, domain: IntArray, grid: Mapping[str, int]
    ) -> Iterator[IntArray]:
        """The grid over runs of positions that begin with `first`, by the groups that the job weighs."""
        if self.group_spread is None:
            return
        places = first[np.lexsort(domain[::-1, first])]
        for found in self.group_spread.proposals(grid, self._near_first(), first, places):
            yield self._in_roles(places[found], len(self.plain) // len(first))

    def _in_roles(self, first_position: IntArray, size: int) -> IntArray:
        """Runs of `size` positions by unit of ranks, those of another role exchanged with each other."""
        order: IntArray = (first_position[:, None] + np.arange(size)).ravel()
        role = self.gang_gpus.role
        astray = np.flatnonzero(role[order] != role)
        if len(astray):
            positions = order[astray]
            by_rank = astray[np.argsort(role[astray], kind="stable")]
            order[by_rank] = positions[np.argsort(role[positions], kind="stable")]
        return order

    def _regular(self) -> bool:
        """Whether blocks of the grid fill domains that are all alike: exchanges only break such an order."""
        traffic_index = pricer_of(self.fabric).traffic_index
        nodes = self.gang_gpus.node[self.first_of_member]
        alike = len(set(traffic_index.kind_of_node[nodes].tolist())) == 1
        return (
            self.fits and alike and all(len({*t.kind_of_domain}) == 1 for t in traffic_index.tiers)
        )

    def _near_first(self) -> list[str]:
        """Axes by what a rank sends along them, most first."""
        sent = dict.fromkeys(self.steps.degrees.order, 0.0)
        for flow in self.steps.flows:
            sent[flow.axis.removeprefix("expert-")] += flow.size_bytes * flow.calls
        return sorted(sent, key=lambda axis: -sent[axis])

    def _most_axis_orders(self) -> int:
        each = 4 * len(self.gang_gpus)
        return min(MOST_AXIS_ORDERS, max(LEAST_ORDERS, MOST_RANKS_PRICED // each))

    # ----- exchanges

    def _exchanged(self, order: IntArray) -> IntArray:
        """Exchange two members as long as that is cheaper."""
        pairs = self._pairs_that_differ()
        at_once = max(LEAST_ORDERS, MOST_RANKS_PRICED // (2 * len(self.gang_gpus)))
        pairs = pairs[:: -(-len(pairs) // at_once) or 1]
        for _ in range(MOST_EXCHANGES if pairs else 0):
            tried = np.stack([self._swapped(a, b)[order] for a, b in pairs])
            priced = self.steps.price(tried)
            chosen = _best(priced)
            now = float(priced.step_s[chosen]), float(priced.spread_s[chosen])
            if not self._better(*now):
                break
            (self.best_step_s, self.best_spread_s), order = now, tried[chosen]
        return order

    def _better(self, step_s: float, spread_s: float) -> bool:
        """A shorter step, or one that is no longer and has fewer groups that are slow: the next exchange may pay."""
        if step_s < self.best_step_s * _CHEAPER:
            return True
        return (
            step_s * _CHEAPER <= self.best_step_s and spread_s < self.best_spread_s * _LESS_SPREAD
        )

    def _pairs_that_differ(self) -> list[tuple[int, int]]:
        """Pairs of members of a role that do not stand alike: on other machines or GPUs, or not in one domain."""
        traffic_index = pricer_of(self.fabric).traffic_index
        node = self.gang_gpus.node[self.first_of_member]
        gpus = [tuple(self.gang_gpus.gpu[self._positions_of(m)].tolist()) for m in range(len(node))]
        above = self.fabric.domain_of_node[self.fabric.node_tier - 1][node].tolist()
        kind, role = (
            traffic_index.kind_of_node[node].tolist(),
            self.gang_gpus.role[self.first_of_member],
        )
        stands = list(zip(above, kind, gpus, strict=True))
        return [
            (a, b)
            for a, b in combinations(range(len(node)), 2)
            if role[a] == role[b] and stands[a] != stands[b]
        ]

    def _swapped(self, a: int, b: int) -> IntArray:
        swapped = self.plain.copy()
        swapped[self._positions_of(a)], swapped[self._positions_of(b)] = (
            self._positions_of(b),
            self._positions_of(a),
        )
        return swapped


def _best(priced: OrderSteps) -> int:
    """The first of those with the shortest step and, among these, clearly the least slow groups."""
    shortest = priced.step_s * _CHEAPER <= priced.step_s.min()
    spread_s = np.where(shortest, priced.spread_s, np.inf)
    return int(np.flatnonzero(spread_s * _LESS_SPREAD <= spread_s.min())[0])
