"""The price of using a domain in the exact search: one integer whose digits are compared from the highest.

    counts     one digit per tier, the widest highest: how many of its domains a gang uses
    NICs       of nodes used by roles that ask for NICs and no GPU (parameter servers): how many NICs they have less
               free than the richest node has. Among as few domains such members go where most NICs are
    cutting    seconds until the MIG instances are there that members get
    leftovers  one digit per tier, the node highest: free GPUs of the domains used

A digit is as wide as its sum can grow. Digits below the counts are rounded, or left out, where they do not fit; counts
never are.
"""

from dataclasses import dataclass

import numpy as np

from gantree.placement.counting.least_sums import DIGITS
from gantree.placement.scoring.simplex import FloatArray
from gantree.placement.slots.problem import Problem
from gantree.topology.fabric.fabric import IntArray

MOST_NICS = 64
"""The limit of distinguished NIC counts of a node: more than any machine has."""


MOST_CUT = 4000
"""The limit of distinguished repartitioning times of a node, in quarters of a second (a whole node: 3 min)."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of the domains from one tier down; servers are the roles that go by NICs."""

    unit_of_tier: tuple[int, ...]
    shift_of_tier: tuple[tuple[int, int], ...]
    free_gpus: tuple[IntArray, ...]
    servers: tuple[int, ...]
    nics_short_of_node: IntArray
    cut_unit: int

    @classmethod
    def of(cls, problem: Problem, top: int) -> "Prices":
        """Lay out the digits of a cost for domains of tier top and below."""
        node_tier, members = problem.fabric.node_tier, sum(problem.members)
        free = tuple(problem.occupancy.free_gpus_in_domain(t) for t in range(node_tier + 1))
        bits = [0] * top + [
            min(members, problem.fabric.domains(t)).bit_length() for t in range(top, node_tier + 1)
        ]
        left = DIGITS - sum(bits)
        assert left >= 0, f"{sum(bits)} bits of counts"
        units = [1 << (left + sum(bits[tier + 1 :])) for tier in range(node_tier + 1)]
        servers = _servers(problem)
        left, nics_short = _nic_digit(problem, servers, left)
        left, cut_unit = _cut_digit(problem, left)
        shifts = [(0, -1)] * (node_tier + 1)
        for tier in range(node_tier, top - 1, -1):
            most = (min(members, len(free[tier])) * int(free[tier].max(initial=0))).bit_length()
            width = min(most, left)
            left -= width
            shifts[tier] = (most - width, left if width else -1)
        return cls(tuple(units), tuple(shifts), free, servers, nics_short, cut_unit)

    def of_domain(self, tier: int, domain: int) -> int:
        """Cost of using a domain at all."""
        down, up = self.shift_of_tier[tier]
        waste = int(self.free_gpus[tier][domain]) >> down << up if up >= 0 else 0
        return self.unit_of_tier[tier] + waste

    def of_cuts(self, seconds: FloatArray) -> IntArray:
        """Cost of cutting the GPUs of one node for so long."""
        cost: IntArray = self.cut_unit * np.minimum(np.ceil(4 * seconds), MOST_CUT).astype(np.int64)
        return cost


def _servers(problem: Problem) -> tuple[int, ...]:
    """Return the roles with NICs and no GPU, if others have GPUs."""
    shapes = [role.shape for role in problem.request.roles]
    if not any(shape.gpus or shape.part for shape in shapes):
        return ()
    return tuple(n for n, s in enumerate(shapes) if s.nics and not (s.gpus or s.part))


def _cut_digit(problem: Problem, left: int) -> tuple[int, int]:
    """Return (bits below it, the price of a quarter of a second); 0 without MIG instances, or with too few bits."""
    instances = sum(
        members
        for role, members in zip(problem.request.roles, problem.members, strict=True)
        if role.shape.mig is not None
    )
    width = (instances * MOST_CUT).bit_length()
    return (left - width, 1 << (left - width)) if instances and width <= left else (left, 0)


def _nic_digit(problem: Problem, servers: tuple[int, ...], left: int) -> tuple[int, IntArray]:
    """(bits left below it, cost by node of holding servers)."""
    free = np.minimum(problem.occupancy.free_nics_of_node, MOST_NICS)
    if not servers:
        return left, np.zeros_like(free)
    short = free.max() - free
    most = int(short.max()) * sum(problem.members[role] for role in servers)
    width = min(most.bit_length(), left)
    return left - width, short >> (most.bit_length() - width) << (left - width)
