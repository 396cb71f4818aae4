"""Layouts of the grid of a job's ranks over its places: candidates that `rank_order` prices.

A job's ranks form a grid with one axis per kind of parallelism. The groups of the axis that is numbered fastest are
adjacent. So each order of the axes, from nearest to farthest, gives a layout. It is assigned to places in two ways:

- *in a row*: the grid as counted, over the places in topology order. Best where sizes divide.
- *packed*: from the widest tier down, each domain gets as many whole blocks of the grid as fit, the largest first; a
  block that does not fit is split along its slowest axis, and its parts fill what is left. With pipelines of 4 over
  leaves of 15 and 17 nodes, 3 and 4 pipelines are whole, and one is split.

*Units* are assigned: single ranks, or runs of ranks that stay together (those of a member that is one process). There
are as many places as units. Places are numbered in topology order and described by domain[level, place], levels from
wide to narrow; numbers of domains need only differ within one domain of the level above. Nothing is priced here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

import numpy as np

from gantree.topology.fabric.fabric import IntArray


def levels_that_divide(domain: IntArray) -> IntArray:
    """domain[level, place] without the levels that divide nothing which a wider one has not divided already."""
    told = np.zeros(domain.shape[1] - 1, dtype=np.bool_)
    kept = []
    for level, row in enumerate(domain):
        divides = (row[1:] != row[:-1]) | told
        if (divides != told).any():
            kept.append(level)
            told = divides
    return domain[kept]


def axis_orders(
    grid: Mapping[str, int], near_first: Sequence[str], most: int
) -> list[tuple[str, ...]]:
    """Orders of the axes of two or more ways, nearest axis first: at most `most`, those most like near_first first."""
    axes = [axis for axis in near_first if grid[axis] > 1]
    number = {axis: place for place, axis in enumerate(axes)}
    orders = sorted(permutations(axes), key=lambda order: _turned_round([number[a] for a in order]))
    return orders[:most]


def _turned_round(order: Sequence[int]) -> int:
    return sum(a > b for place, a in enumerate(order) for b in order[place + 1 :])


@dataclass(frozen=True, slots=True)
class GridLayout:
    """Units counted in one order of the axes. key[unit] is where its first rank stands; blocks are sizes in ranks of
    the runs of keys that belong together, the largest first."""

    key: IntArray
    blocks: tuple[int, ...]

    @classmethod
    def of(
        cls, grid: Mapping[str, int], order: Sequence[str], first_rank: IntArray
    ) -> "GridLayout":
        """Count a grid, whose axes stand slowest first, with order[0] fastest. first_rank[unit] rise by one size."""
        place = dict(zip(grid, np.unravel_index(first_rank, tuple(grid.values())), strict=True))
        key = np.zeros(len(first_rank), dtype=np.int64)
        size, sizes = 1, []
        for axis in order:
            key += size * place[axis]
            size *= grid[axis]
            sizes.append(size)
        return cls(key, tuple(reversed(sizes[:-1])))

    def in_a_row(self) -> IntArray:
        """place_of_unit[unit], as counted."""
        place_of_unit = np.empty(len(self.key), dtype=np.int64)
        place_of_unit[np.argsort(self.key, kind="stable")] = np.arange(len(self.key))
        return place_of_unit

    def packed(self, domain: IntArray) -> IntArray:
        """place_of_unit[unit], whole blocks in whole domains: domain[level, place]."""
        place_of_unit = np.empty(len(self.key), dtype=np.int64)
        units = np.argsort(self.key, kind="stable").astype(np.int64)
        for share, first in self._filled(units, 0, domain):
            place_of_unit[share] = np.arange(first, first + len(share))
        return place_of_unit

    def _filled(
        self, units: IntArray, first: int, domain: IntArray
    ) -> Iterator[tuple[IntArray, int]]:
        """Units, by key, and the first of the places that they take in that order; domain is of their places alone."""
        level = _first_that_divides(domain)
        if level is None:
            yield units, first
            return
        bounds = [0, *(np.flatnonzero(np.diff(domain[level])) + 1).tolist(), len(units)]
        sizes = [end - begin for begin, end in pairwise(bounds)]
        below = domain[level + 1 :]
        for share, begin in zip(self._shared_out(units, sizes), bounds, strict=False):
            of_share = below[:, begin : begin + len(share)]
            yield from self._filled(share, first + begin, of_share)

    def _shared_out(self, units: IntArray, sizes: Sequence[int]) -> list[IntArray]:
        """Share units out to domains of these sizes, the largest blocks first, each where it first fits."""
        left = list(sizes)
        shares: list[list[IntArray]] = [[] for _ in sizes]
        pieces = [units]
        for block in (*self.blocks, 1):
            broken: list[IntArray] = []
            for piece in pieces:
                for run in self._runs(piece, block):
                    fits = next((at for at, room in enumerate(left) if room >= len(run)), None)
                    if fits is None:
                        broken.append(run)
                    else:
                        left[fits] -= len(run)
                        shares[fits].append(run)
            pieces = broken
        return [self._by_key(share) for share in shares]

    def _runs(self, units: IntArray, block: int) -> list[IntArray]:
        of_block = self.key[units] // block
        return np.split(units, np.flatnonzero(np.diff(of_block)) + 1)

    def _by_key(self, runs: list[IntArray]) -> IntArray:
        units = np.concatenate(runs)
        ordered: IntArray = units[np.argsort(self.key[units], kind="stable")]
        return ordered


def _first_that_divides(domain: IntArray) -> int | None:
    """The widest level with several domains; None where the places are all in one of each."""
    if domain.shape[1] < 2:
        return None
    divides = np.flatnonzero((domain[:, 1:] != domain[:, :-1]).any(axis=1))
    return int(divides[0]) if len(divides) else None
