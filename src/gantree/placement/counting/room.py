"""Slots for a gang of one role as additive numbers, by domain of each tier.

With one role the members that fit a domain are the multiples of its slice size up to a capacity, and a domain's
capacity is the sum of its children's, rounded down to whole slices and cut where members must be spread. So whether a
gang fits is one comparison per tier, and the fewest children that could hold it are counted off their capacities,
largest first.

Members are counted in units of the slice that must share a node (1 without such slices). Capacities of the domains
inside each of several domains stand in one flat array, domain after domain, so that uneven trees cost no padding.

Most gangs ask for no slices and no spreading. Their room is that of the slot table as it stands (`plain`), and nothing
is added up for them.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from gantree.placement.request.topology_request import RoleRequest
from gantree.placement.slots.fewest_children import FewestChildren
from gantree.placement.slots.problem import Problem
from gantree.placement.slots.slots import SlotTable
from gantree.topology.fabric.fabric import IntArray


@dataclass(frozen=True, slots=True)
class Room:
    """A gang of one role and the room for it, in units: capacity[tier][domain].

    narrowest is the tier of which one domain must hold the gang (0: none must); multiple[tier] is what the units in
    each domain of a tier must be divisible by. plain: capacities are the slots of the table, nothing else binds.
    """

    problem: Problem
    unit: int
    need: int
    narrowest: int
    multiple: tuple[int, ...]
    capacity: tuple[IntArray, ...]
    plain: bool

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Count the room for the one role of a problem."""
        role, members = problem.request.roles[0], problem.members[0]
        narrowest = max(problem.request.whole_at, role.whole_at)
        if _is_plain(role, members):
            table = problem.tables[0]
            return cls(
                problem, 1, members, narrowest, role.multiple_in_domain, table.in_domain, True
            )
        unit = role.multiple_in_domain[-1]
        multiple = tuple(m // unit for m in role.multiple_in_domain)
        capacity = _capacity(problem, role, unit)
        return cls(problem, unit, members // unit, narrowest, multiple, capacity, False)

    @property
    def talks(self) -> bool:
        """Whether members talk over NICs near their GPUs, so that they had better be dealt out evenly."""
        return self.problem.even and self.problem.tables[0].shape.gpus > 0

    @property
    def table(self) -> SlotTable:
        """The slots of the one role."""
        return self.problem.tables[0]

    def tier(self) -> int | None:
        """The narrowest tier of which one domain holds the gang."""
        need = self.need
        for tier in range(len(self.capacity) - 1, self.narrowest - 1, -1):
            capacity = self.capacity[tier]
            if capacity[capacity.argmax()] >= need:
                return tier
        return None

    def fewest_children(self, tier: int) -> tuple[int, IntArray]:
        """(k, domains of a tier): no domain holds the gang in fewer than k children by their capacities, and which do.

        Some domain of the tier holds the gang.
        """
        fabric = self.problem.fabric
        index = (
            self.table.fewest_children(tier, fabric)
            if self.plain
            else FewestChildren.of(fabric, tier, self.capacity[tier + 1])
        )
        holding = (self.capacity[tier] >= self.need).nonzero()[0]
        if index is None:
            fewest = self.capped().fewest(tier, holding, tier + 1)
            return int(fewest.min()), holding[fewest == fewest.min()]
        k, domains = index.fewest(self.need)
        if not self.plain:
            domains = domains[self.capacity[tier][domains] >= self.need]
            return (k, domains) if len(domains) else (k, holding)
        return k, domains

    def capped(self) -> Self:
        """The same room with no capacity above the need: what tables over all amounts are made of."""
        return replace(self, capacity=tuple(np.minimum(c, self.need) for c in self.capacity))

    def inside(self, tier: int, domains: IntArray, below: int) -> "ChildDomains":
        """The domains of tier `below` inside these of `tier`."""
        first_node, domain_of_node = (
            self.problem.fabric.first_node_of_domain[tier],
            self.problem.fabric.domain_of_node[below],
        )
        start = domain_of_node[first_node[domains]]
        stop = domain_of_node[first_node[domains + 1] - 1] + 1
        return ChildDomains.of(start, stop, self.capacity[below])

    def fewest(self, tier: int, domains: IntArray, below: int) -> IntArray:
        """fewest[row]: no fewer domains of tier `below` hold the gang in domains[row], and so many do if children.

        Of a capped room.
        """
        inside = self.inside(tier, domains, below)
        too_few = inside.row[inside.reached() < self.need]
        return np.bincount(too_few, minlength=len(domains)) + 1


def _is_plain(role: RoleRequest, members: int) -> bool:
    """Whether neither slices nor spreading bind the members; what binds a domain of a tier binds all wider ones."""
    most = role.most_in_domain
    return role.multiple_in_domain[0] == 1 and (not most or min(most) >= members)


def _capacity(problem: Problem, role: RoleRequest, unit: int) -> tuple[IntArray, ...]:
    """capacity[tier][domain] in units, from the nodes up: whole slices only, and no more than may be together."""
    fabric = problem.fabric
    sums = problem.tables[0].of_node // unit
    in_tier: list[IntArray] = []
    for tier in range(fabric.node_tier, -1, -1):
        if tier < fabric.node_tier:
            sums = np.add.reduceat(in_tier[-1], fabric.first_child_of_domain[tier][:-1])
        multiple = role.multiple_in_domain[tier] // unit
        if role.most_in_domain:
            sums = np.minimum(sums, role.most_in_domain[tier] // unit)
        if multiple > 1:
            sums = sums - sums % multiple
        in_tier.append(sums)
    return tuple(reversed(in_tier))


@dataclass(frozen=True, slots=True, eq=False)
class ChildDomains:
    """Domains inside others, flat: number[i] lies in that of row[i] and has capacity[i]; row's first is first[row]."""

    row: IntArray
    first: IntArray
    number: IntArray
    capacity: IntArray

    @classmethod
    def of(cls, start: IntArray, stop: IntArray, capacity: IntArray) -> Self:
        """Rows of the numbers start[row] to stop[row] - 1, none of them empty."""
        count = stop - start
        first = np.cumsum(count) - count
        row = np.repeat(np.arange(len(start)), count)
        number = np.arange(len(row)) + (start - first)[row]
        return cls(row, first, number, capacity[number])

    def reached(self) -> IntArray:
        """What the largest capacity of a row holds, the two largest, the three largest, ...: row after row."""
        span = int(self.capacity.max(initial=0)) + 1
        key = self.row * span - self.capacity
        key.sort()
        largest_first = self.row * span - key
        total = np.cumsum(largest_first)
        reached: IntArray = total - (total - largest_first)[self.first][self.row]
        return reached
