"""Index beside a slot table: the fewest children of a domain that hold a number of members.

The table builds it on first use and updates it domain by domain.
"""

from functools import lru_cache
from typing import Self

import numpy as np

from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray

MOST_PADDING = 4
"""Padded tables may be so many times as large as there are children; trees more uneven than that have none."""


class FewestChildren:
    """slots_of_largest[k - 1, domain]: slots of the k children of a domain with most slots, together."""

    def __init__(self, child: IntArray, there: BoolArray, slots_of_child: IntArray) -> None:
        self._child, self._there = child, there
        self.slots_of_largest = np.ascontiguousarray(
            self._rows(np.arange(len(child)), slots_of_child).T
        )

    @classmethod
    def of(cls, fabric: Fabric, tier: int, slots_of_child: IntArray) -> Self | None:
        """Build the index of a tier; None where the tree is too uneven for padded tables."""
        children = _children(fabric, tier)
        return None if children is None else cls(*children, slots_of_child)

    def follow(self, domains: IntArray, slots_of_child: IntArray) -> None:
        """Update domains of which a child changed."""
        self.slots_of_largest[:, domains] = self._rows(domains, slots_of_child).T

    def fewest(self, need: int) -> tuple[int, IntArray]:
        """Return (k, domains): the fewest children of one domain with `need` slots, and the domains where k suffice.

        At least one domain must have so many slots.
        """
        for number, row in enumerate(self.slots_of_largest):
            if row[row.argmax()] >= need:
                return number + 1, (row >= need).nonzero()[0]
        raise AssertionError(f"no domain holds {need}")

    def _rows(self, domains: IntArray, slots_of_child: IntArray) -> IntArray:
        rows = slots_of_child[self._child[domains]]
        rows *= self._there[domains]
        rows = -rows
        rows.sort(axis=1)
        reached: IntArray = -rows.cumsum(axis=1)
        return reached


@lru_cache(maxsize=64)
def _children(fabric: Fabric, tier: int) -> tuple[IntArray, BoolArray] | None:
    """child[domain, place], and whether it is there: domains with fewer children are padded. None if by too much."""
    first = fabric.first_child_of_domain[tier]
    count = np.diff(first)
    width = int(count.max())
    if width * len(count) > MOST_PADDING * int(first[-1]):
        return None
    column = np.arange(width)
    there = column < count[:, None]
    return np.where(there, first[:-1, None] + column, 0), there
