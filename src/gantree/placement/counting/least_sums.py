"""Least sums of costs over vectors of counts: combines the tables of the exact search of several roles.

A cost is an array over x, so many members of each role, one axis a role. It ends where nothing more fits; INFINITE
stands for an x between that does not. The least cost of x in two places is the minimum over y of rest[x - y] + cost[y].

Most tables are closed: what fits still fits with fewer members, at no higher cost. Then of all y of one cost only those
count to which no member can be added, with rest[0] where y is more than x. A node with 8 free GPUs takes two kinds of
members in dozens of ways, of which a handful remain.

Both arrays are laid out flat, with low ends before each row; then each y is one shift, and all shifts are one array.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import add, mul
from typing import Self

import numpy as np

from gantree.topology.fabric.fabric import IntArray

INFINITE = np.int64(1) << 61
DIGITS = 60
"""Bits of a cost; two costs may be added without overflow, INFINITE ones too."""

MOST_SUMS = 1 << 17
"""Sums held at once: 1 MiB, which stays in a core's cache."""

Counts = tuple[int, ...]
Box = tuple[slice, ...]


@dataclass(frozen=True, eq=False)
class Costs:
    """of[x] for each x up to the end of its array. closed: no cost falls where a member is added."""

    of: IntArray
    closed: bool

    @classmethod
    def nothing(cls, roles: int) -> Self:
        """Return the costs of a place that holds no member."""
        return cls(np.zeros((1,) * roles, dtype=np.int64), closed=True)

    @property
    def nobody(self) -> bool:
        """Return whether no member fits."""
        return self.of.size == 1

    @cached_property
    def parts(self) -> tuple[IntArray, IntArray]:
        """(y, its cost) of all y that count."""
        counts = self.of < INFINITE
        if self.closed:
            for axis in range(self.of.ndim):
                counts[_but_last(axis)] &= np.diff(self.of, axis=axis) != 0
        return np.argwhere(counts), self.of[counts]

    def trimmed(self) -> Self:
        """Without ends where nothing fits; something does."""
        ends = tuple(int(axis.max()) + 1 for axis in np.nonzero(self.of < INFINITE))
        return self if ends == self.of.shape else type(self)(self.of[up_to(ends)], self.closed)


def least_sum(rest: Costs, cost: Costs, members: Counts) -> Costs:
    """The least cost of x, up to `members`, in two places together."""
    if cost.nobody:
        return rest
    if rest.nobody:
        return cost
    layout = _layout(rest.of.shape, cost.of.shape, members)
    closed = rest.closed and cost.closed
    if cost.closed and not closed:
        cost = Costs(cost.of, closed=False)
    y, costs = cost.parts
    flat = layout.spread_out(rest.of, closed)
    return Costs(layout.result(_least(flat, layout.starts(y), costs, layout.length)), closed)


def part_of(rest: IntArray, cost: IntArray, x: Counts, least: int) -> Counts:
    """The largest y, by its first role, then by the next, for which rest[x - y] + cost[y] is the least of x."""
    low = [max(0, a + 1 - size) for a, size in zip(x, rest.shape, strict=True)]
    stop = [min(a + 1, size) for a, size in zip(x, cost.shape, strict=True)]
    ranges = list(zip(x, low, stop, strict=True))
    mine = cost[tuple(slice(start, end) for _, start, end in ranges)]
    left = rest[tuple(slice(a + 1 - end, a + 1 - start) for a, start, end in ranges)]
    total = mine + np.flip(left)
    best = int(np.flatnonzero(total.reshape(-1) == least)[-1])
    place = np.unravel_index(best, total.shape)
    return tuple(int(number) + start for number, start in zip(place, low, strict=True))


def up_to(ends: tuple[int, ...]) -> Box:
    """The part of an array before these ends."""
    return tuple(map(slice, ends))


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the flat array has rest[x]: `before` low ends along each axis, then x up to `size`.

    width is both together, step the distance of neighbours along an axis, length that from the first x to the last row,
    tail what windows of that length need behind the last row.
    """

    before: Counts
    size: Counts
    width: Counts
    step: Counts
    length: int
    tail: int

    @classmethod
    def of(cls, rest: Counts, cost: Counts, members: Counts) -> Self:
        before = tuple(b - 1 for b in cost)
        size = tuple(min(a + b, most + 1) for a, b, most in zip(rest, before, members, strict=True))
        width = tuple(a + b for a, b in zip(size, before, strict=True))
        step = [1] * len(width)
        for axis in range(len(width) - 2, -1, -1):
            step[axis] = step[axis + 1] * width[axis + 1]
        tail = sum(b * s for b, s in zip(before[1:], step[1:], strict=True))
        return cls(before, size, width, tuple(step), size[0] * step[0], tail)

    def spread_out(self, rest: IntArray, closed: bool) -> IntArray:
        """The flat array; low ends are INFINITE, or of closed costs those of no members."""
        count = self.width[0] * self.step[0]
        flat = np.full(count + self.tail, INFINITE)
        grid = flat[:count].reshape(self.width)
        kept = rest[up_to(self.size)]
        grid[tuple(map(slice, self.before, map(add, self.before, kept.shape)))] = kept
        if closed:
            for axis, low_ends in enumerate(self.before):
                if low_ends:
                    every = (slice(None),) * axis
                    grid[(*every, slice(low_ends))] = grid[(*every, slice(low_ends, low_ends + 1))]
        return flat

    def starts(self, y: IntArray) -> IntArray:
        """Where the flat array has rest[0 - y]."""
        starts: IntArray = np.full(len(y), sum(map(mul, self.before, self.step)))
        for axis, step in enumerate(self.step):
            starts -= y[:, axis] * step
        return starts

    def result(self, flat: IntArray) -> IntArray:
        """The array over x of a flat one."""
        return flat.reshape((self.size[0], *self.width[1:]))[up_to(self.size)]


_layout = lru_cache(maxsize=1 << 14)(_Layout.of)


def _least(flat: IntArray, starts: IntArray, costs: IntArray, length: int) -> IntArray:
    """least[i] = minimum over k of flat[starts[k] + i] + costs[k]."""
    windows = np.ndarray(  # what sliding_window_view makes, in a tenth of its time
        (len(flat) - length + 1, length), np.int64, flat, strides=(flat.itemsize, flat.itemsize)
    )
    step = max(1, MOST_SUMS // length)
    least = _least_of_some(windows, starts[:step], costs[:step])
    for first in range(step, len(starts), step):
        some = slice(first, first + step)
        np.minimum(least, _least_of_some(windows, starts[some], costs[some]), out=least)
    return least


def _least_of_some(windows: IntArray, starts: IntArray, costs: IntArray) -> IntArray:
    sums = windows[starts]
    sums += costs[:, None]
    least: IntArray = sums.min(axis=0)
    return np.minimum(least, INFINITE, out=least)


def _but_last(axis: int) -> Box:
    return (*(slice(None),) * axis, slice(-1))
