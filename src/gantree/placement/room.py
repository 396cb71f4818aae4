"""How much of a gang of one role fits where, in numbers that add up.

With one role the members that fit a domain are the multiples of its slice size up to a capacity, and a domain's
capacity is the sum of its children's, rounded down to whole slices. So whether a gang fits is one comparison per tier,
and the fewest children that could hold it are counted off their capacities, largest first.

Members are counted in units of the slice that must share a node (1 without such slices). Capacities of the domains
inside each of several domains stand in one flat array, domain after domain, so that uneven trees cost no padding.
"""

from dataclasses import dataclass

import numpy as np

from gantree.placement.problem import Problem
from gantree.topology.fabric import IntArray


@dataclass(frozen=True, slots=True)
class Room:
    """A gang of one role and the room for it, in units: capacity[tier][domain], never more than need.

    narrowest is the tier of which one domain must hold the gang (0: none must); multiple[tier] is what the units in
    each domain of a tier must be divisible by.
    """

    problem: Problem
    unit: int
    need: int
    narrowest: int
    multiple: tuple[int, ...]
    capacity: tuple[IntArray, ...]

    @classmethod
    def of(cls, problem: Problem) -> "Room":
        """Count the room for the one role of a problem."""
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

    def inside(self, tier: int, domains: IntArray, below: int) -> "Inside":
        """The domains of tier `below` inside these of `tier`."""
        first_node, domain_of_node = (
            self.problem.fabric.first_node_of_domain[tier],
            self.problem.fabric.domain_of_node[below],
        )
        start = domain_of_node[first_node[domains]]
        stop = domain_of_node[first_node[domains + 1] - 1] + 1
        return Inside.of(start, stop, self.capacity[below])

    def fewest(self, tier: int, domains: IntArray, below: int) -> IntArray:
        """fewest[row]: no fewer domains of tier `below` hold the gang in domains[row], and so many do if children."""
        inside = self.inside(tier, domains, below)
        too_few = inside.row[inside.reached() < self.need]
        return np.bincount(too_few, minlength=len(domains)) + 1


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """Domains inside others, flat: number[i] lies in that of row[i] and has capacity[i]; row's first is first[row]."""

    row: IntArray
    first: IntArray
    number: IntArray
    capacity: IntArray

    @classmethod
    def of(cls, start: IntArray, stop: IntArray, capacity: IntArray) -> "Inside":
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
