"""The best set of GPUs inside one machine, and the order of its ring. Who asks, and when, is `placement.devices`.

How a set of GPUs is judged. The path between two GPUs has a *penalty*: one digit per link class of the machine,
weakest class first, then one digit for crossing a socket and one for crossing a PCIe switch. No digit can overflow
into the next, so adding penalties counts the paths of each kind, and comparing sums asks first "how many of the
weakest links?", then "how many of the next weakest?". That makes one number of what matters to a collective, which
is as fast as its weakest link. Of all sets of the size asked, these decide in turn:

1. the penalty of the set's best ring (each GPU to the next, and the last to the first),
2. the penalty of all its pairs (for traffic that is no ring: all-to-all, trees),
3. the shape of what stays free: total NVLink width between free GPUs (a bridged pair or quad stays whole where a
   broken one serves), then free GPUs together behind a PCIe switch, then on a socket (sums of squares),
4. the lowest indices.

The GPUs are returned in the order of that best ring, turned so that its worst hop is the one that closes it: ranks
next to each other, and the groups of two or four that they form, then have the better hops. Up to EXACT_GPUS GPUs
every set is looked at: the rings of all 2^n sets are solved once per machine by dynamic programming over sets (Held
and Karp), each step of it one array operation, and a question is then one `argmin` over the sets of the right size.
Larger machines are searched greedily: from each free GPU a set is grown by the GPU that adds the least penalty, and
the best of these sets wins.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Matrix = tuple[tuple[int, ...], ...]

EXACT_GPUS = 16
"""Machines up to this many GPUs are searched exhaustively; the largest NVLink node so far (DGX-2) has 16."""
LINK_LEVELS = 7
"""Link classes told apart in one machine, the strongest others are taken as one: sums of seven penalty digits and
two for sockets and switches stay below 121^8 = 4.6e16 on 16 GPUs (the strongest class needs no digit)."""
_UNREACHED = 1 << 60


@dataclass(frozen=True, slots=True)
class Inside:
    """The inside of a machine as the search sees it; domains are masks of GPUs, matrices are symmetric.

    weakness[a][b] is larger for a weaker path (any scale), width[a][b] the number of NVLinks between two GPUs.
    """

    weakness: Matrix
    width: Matrix
    switches: tuple[int, ...]
    sockets: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """How many GPUs the machine has."""
        return len(self.weakness)

    def penalties(self) -> Matrix:
        """Return the penalty of each path, as described on top; 0 on the diagonal."""
        found = sorted({self.weakness[a][b] for a, b in combinations(range(self.gpus), 2)})
        merged = max(0, len(found) - LINK_LEVELS)
        level = {weakness: max(0, place - merged) for place, weakness in enumerate(found)}
        base = self.gpus * (self.gpus - 1) // 2 + 1

        def penalty(a: int, b: int) -> int:
            if a == b:
                return 0
            crossed = _apart(self.switches, a, b) + base * _apart(self.sockets, a, b)
            rank = level[self.weakness[a][b]]
            return crossed + (base ** (rank + 1) if rank else 0)

        return tuple(tuple(penalty(a, b) for b in range(self.gpus)) for a in range(self.gpus))

    def worth_of_rest(self, rest: int) -> tuple[int, int, int]:
        """Return how good the shape of the free GPUs in a mask is: more is better."""
        width = sum(self.width[a][b] for a, b in combinations(bits(rest), 2))
        switches, sockets = (
            sum((rest & domain).bit_count() ** 2 for domain in domains)
            for domains in (self.switches, self.sockets)
        )
        return width, switches, sockets


def _apart(domains: tuple[int, ...], a: int, b: int) -> bool:
    return not any(domain >> a & domain >> b & 1 for domain in domains)


def bits(mask: int) -> Iterator[int]:
    """Yield the indices of the set bits, lowest first."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


class Exhaustive:
    """Looks at every set. Tables are indexed by set (a mask of GPUs) and filled at the first question."""

    def __init__(self, inside: Inside) -> None:
        assert inside.gpus <= EXACT_GPUS, f"{inside.gpus} GPUs"
        self._inside = inside
        self._matrix = inside.penalties()
        shape = (inside.gpus, inside.gpus)
        self._penalty = np.array(self._matrix, dtype=np.int64).reshape(shape)
        self._tables: tuple[Ints, Ints, Ints] | None = None

    def choose(self, free: int, count: int) -> tuple[int, ...]:
        """Return the best `count` (at least 1) GPUs of the mask `free` in ring order."""
        path, penalty_of_set, worth_of_rest = self._tables or self._fill()
        sets = sets_by_size(self._inside.gpus)[count]
        sets = sets[(sets & ~free) == 0]
        penalties = penalty_of_set[sets]
        sets = sets[penalties == penalties.min()]
        best = int(sets[np.argmax(worth_of_rest[free ^ sets])])
        return self._ring(path, best)

    def _fill(self) -> tuple[Ints, Ints, Ints]:
        path = shortest_paths(self._penalty)
        ring = (path + self._penalty[:, lowest_of_set(self._inside.gpus)].T).min(axis=1)
        ring[0] = 0
        every = np.arange(1 << self._inside.gpus, dtype=np.int64)
        pairs = _pair_sums(self._penalty, every)
        self._tables = path, _lexicographic(ring, pairs), _worth_of_sets(self._inside, every)
        return self._tables

    def _ring(self, path: Ints, members: int) -> tuple[int, ...]:
        """Walk the best ring of a set backwards, from its lowest GPU on."""
        here = (members & -members).bit_length() - 1
        order = [here]
        while members.bit_count() > 1:
            here = int(np.argmin(path[members] + self._penalty[:, here]))
            order.append(here)
            members ^= 1 << here
        return turned(tuple(order), self._matrix)


def turned(ring: tuple[int, ...], penalty: Matrix) -> tuple[int, ...]:
    """Return the ring, in either direction, such that its worst hop closes it; among equals from the lowest GPU."""
    starts = [way[i:] + way[:i] for way in (ring, ring[::-1]) for i in range(len(ring))]
    return min(starts, key=lambda order: (-penalty[order[-1]][order[0]], order))


@lru_cache(maxsize=EXACT_GPUS + 1)
def sets_by_size(gpus: int) -> tuple[Ints, ...]:
    """Return per size all sets of so many GPUs as masks, in the order of `itertools.combinations`."""
    every = np.arange(1 << gpus, dtype=np.int64)
    mirrored = sum(
        (((every >> gpu) & 1) << (gpus - 1 - gpu) for gpu in range(gpus)), np.zeros_like(every)
    )
    ordered = every[np.argsort(-mirrored, kind="stable")]
    sizes = popcounts(ordered, gpus)
    return tuple(ordered[sizes == size] for size in range(gpus + 1))


@lru_cache(maxsize=EXACT_GPUS + 1)
def lowest_of_set(gpus: int) -> Ints:
    """Return the lowest GPU of each set [mask]; 0 for the empty set."""
    every = np.arange(1 << gpus, dtype=np.int64)
    return popcounts((every & -every) - 1, gpus) * (every > 0)


def popcounts(sets: Ints, gpus: int) -> Ints:
    """Count the GPUs of each set; bits from `gpus` on are not counted."""
    return sum(((sets >> gpu) & 1 for gpu in range(gpus)), np.zeros_like(sets))


def shortest_paths(penalty: Ints) -> Ints:
    """Return [mask][last]: the least penalty of a path through a set from its lowest GPU to `last`.

    _UNREACHED where `last` is not in the set, or is the lowest of several. Each step extends all sets of one size.
    """
    gpus = len(penalty)
    lowest = lowest_of_set(gpus)
    path = np.full((1 << gpus, gpus), _UNREACHED, dtype=np.int64)
    for gpu in range(gpus):
        path[1 << gpu, gpu] = 0
    for sets in sets_by_size(gpus)[2:]:
        for last in range(gpus):
            ends = sets[((sets >> last) & 1 == 1) & (lowest[sets] != last)]
            path[ends, last] = (path[ends ^ (1 << last)] + penalty[:, last]).min(
                axis=1, initial=_UNREACHED
            )
    return path


def _pair_sums(matrix: Ints, sets: Ints) -> Ints:
    """Sum a symmetric matrix over the pairs of GPUs in each set."""
    total = np.zeros_like(sets)
    for a, b in combinations(range(len(matrix)), 2):
        if matrix[a, b]:
            total += matrix[a, b] * ((sets >> a) & (sets >> b) & 1)
    return total


def _lexicographic(first: Ints, second: Ints) -> Ints:
    """Return one number per place that orders by `first`, then by `second`."""
    rank_of_first = np.unique(first, return_inverse=True)[1]
    found, rank_of_second = np.unique(second, return_inverse=True)
    return rank_of_first.astype(np.int64) * len(found) + rank_of_second


def _worth_of_sets(inside: Inside, sets: Ints) -> Ints:
    """Return `Inside.worth_of_rest` of each set as one number that orders alike."""
    worth = _pair_sums(np.array(inside.width, dtype=np.int64).reshape(inside.gpus, -1), sets)
    for domains in (inside.switches, inside.sockets):
        squares = [popcounts(sets & np.int64(domain), inside.gpus) ** 2 for domain in domains]
        worth = worth * (inside.gpus**2 + 1) + sum(squares, np.zeros_like(sets))
    return worth


class Greedy:
    """Grows a set from each free GPU; for machines with more GPUs than can be searched whole."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._penalty = inside.penalties()

    def choose(self, free: int, count: int) -> tuple[int, ...]:
        """Return a good set of `count` (at least 1) GPUs of the mask `free`, nearest neighbours consecutive."""
        grown = {self._grow(seed, free, count) for seed in bits(free)}
        best = min(grown, key=lambda members: (*self._judge(members, free), tuple(bits(members))))
        return turned(self._chain(best), self._penalty)

    def _grow(self, seed: int, free: int, count: int) -> int:
        """Add the GPU with the least penalty to those taken; among equals the one whose domains are most broken."""
        room = [
            tuple((free & domain).bit_count() for domains in (self._inside.switches, self._inside.sockets)
                  for domain in domains if domain >> gpu & 1)
            for gpu in range(self._inside.gpus)
        ]  # fmt: skip
        members, added = 1 << seed, list(self._penalty[seed])
        for _ in range(count - 1):
            gpu = min(bits(free & ~members), key=lambda gpu: (added[gpu], room[gpu], gpu))
            members |= 1 << gpu
            added = [old + new for old, new in zip(added, self._penalty[gpu], strict=True)]
        return members

    def _judge(self, members: int, free: int) -> tuple[int, ...]:
        ring = self._chain(members)
        hops = zip(ring, ring[1:] + ring[:1], strict=True)
        pairs = combinations(ring, 2)
        worth = self._inside.worth_of_rest(free ^ members)
        return (
            sum(self._penalty[a][b] for a, b in hops),
            sum(self._penalty[a][b] for a, b in pairs),
            *(-part for part in worth),
        )

    def _chain(self, members: int) -> tuple[int, ...]:
        """Order a set from its lowest GPU, each followed by the nearest that is left."""
        order = [(members & -members).bit_length() - 1]
        left = members & (members - 1)
        while left:
            order.append(min(bits(left), key=lambda gpu: (self._penalty[order[-1]][gpu], gpu)))
            left ^= 1 << order[-1]
        return tuple(order)
