"""The best set of GPUs inside one machine, and the order of its ring. Its caller, with a cache, is
`placement.machine.devices`.

How a set of GPUs is judged. The path between two GPUs has a *penalty*: one digit per link class of the machine,
weakest class first, then one digit for crossing a socket and one for crossing a PCIe switch. No digit can overflow
into the next, so adding penalties counts the paths of each kind, and comparing sums asks first "how many of the
weakest links?", then "how many of the next weakest?". That makes one number of what matters to a collective, which
is as fast as its weakest link. Of all sets of the size asked, these decide in turn:

1. the link classes of the set's best ring (each GPU to the next, and the last to the first), then those of all its
   pairs (for traffic that is no ring: all-to-all, trees),
2. what the set lacks nearby (`NearbyResources`; only if the caller says what is free there): GPUs that are far from a
   free NIC, farthest first; requested NICs that are near to none of its GPUs; GPUs that the cores and memory of their
   NUMA node do not serve,
3. the NVLinks that stay between free GPUs,
4. the rest of the penalty, sockets and PCIe switches crossed: of the ring, then of all pairs,
5. free GPUs that stay together behind a PCIe switch, then on a socket (sums of squares),
6. the lowest indices.

So NICs never cost a link class but do cost a socket: GPUs on NVLink do not notice one, while a GPU that has to use the
NIC of another halves that NIC. Links left (3) keep bridged pairs, meshes and quads whole: among sets whose links are
alike, most are left exactly where fewest NVLinks have one end taken and the other free, of use to nobody. NVLinks
inside a set need no account of their own: both their ends are held by whoever holds the set, so nobody else can use
them until it gives the GPUs back.

The GPUs are returned in the order of that best ring, turned so that its worst hop is the one that closes it: ranks
next to each other, and the groups of two or four that they form, then have the better hops. Up to EXACT_GPUS GPUs
every set is looked at: the rings of all 2^n sets are solved once per machine by dynamic programming over sets (Held
and Karp), each step of it one array operation, and a question is then a few comparisons over the sets of its size.
Larger machines are searched greedily: from each free GPU a set is grown by the GPU that adds the least penalty, and
the best of these sets wins.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Matrix = tuple[tuple[int, ...], ...]
Sets = TypeVar("Sets", int, Ints)
"""One set of GPUs as a mask, or an array of them."""
NumaShortages = tuple[tuple[int, int], ...]
"""(mask of the GPUs on a NUMA node, how many of them its cores and memory serve); only NUMA nodes short of that."""

EXACT_GPUS = 16
"""Machines up to this many GPUs are searched exhaustively; the largest NVLink node so far (DGX-2) has 16."""
LINK_LEVELS = 7
"""Link classes told apart in one machine, the strongest others are taken as one: sums of seven penalty digits and
two for sockets and switches stay below 121^8 = 4.6e16 on 16 GPUs (the strongest class needs no digit)."""
_UNREACHED = 1 << 60
_DIGIT = 1 << 10
"""Base in which lacks are counted: five digits fit 64 bits; no machine has as many GPUs or NICs."""


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """The links inside a machine as the search sees them; domains are masks of GPUs, matrices are symmetric.

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

    @property
    def base(self) -> int:
        """What a digit of a penalty counts up to: all pairs."""
        return self.gpus * (self.gpus - 1) // 2 + 1

    @property
    def links_from(self) -> int:
        """A penalty over this is its part that counts link classes; the rest counts sockets and switches."""
        return self.base**2

    def penalties(self) -> Matrix:
        """Return the penalty of each path, as described on top; 0 on the diagonal."""
        found = sorted({self.weakness[a][b] for a, b in combinations(range(self.gpus), 2)})
        merged = max(0, len(found) - LINK_LEVELS)
        level = {weakness: max(0, place - merged) for place, weakness in enumerate(found)}
        base = self.base

        def penalty(a: int, b: int) -> int:
            if a == b:
                return 0
            crossed = _apart(self.switches, a, b) + base * _apart(self.sockets, a, b)
            rank = level[self.weakness[a][b]]
            return crossed + (base ** (rank + 1) if rank else 0)

        return tuple(tuple(penalty(a, b) for b in range(self.gpus)) for a in range(self.gpus))

    def width_inside(self, gpus: int) -> int:
        """Return how many NVLinks there are between GPUs of a mask."""
        return sum(self.width[a][b] for a, b in combinations(bits(gpus), 2))

    def togetherness(self, gpus: int) -> tuple[int, int]:
        """Return how much the GPUs of a mask are together behind switches, and on sockets: sums of squares."""
        switches, sockets = (
            sum((gpus & domain).bit_count() ** 2 for domain in domains)
            for domains in (self.switches, self.sockets)
        )
        return switches, sockets


@dataclass(frozen=True, slots=True)
class NearbyResources:
    """What is free near the GPUs of a machine, and how much of it is requested.

    far: masks of the GPUs that are equally far from a free NIC, farthest first, without those near to one. near: for
    each free NIC, or several alike, (mask of the GPUs it is near to, how many); nics of these are requested.
    """

    far: tuple[int, ...]
    near: tuple[tuple[int, int], ...]
    nics: int
    shortages: NumaShortages

    def is_irrelevant_for(self, free: int) -> bool:
        """Whether no set of these GPUs lacks more than another: all are near free NICs, nothing more is requested."""
        return not self.nics and not self.shortages and not any(far & free for far in self.far)

    def lack(self, members: Sets, count: Callable[[Sets], Sets]) -> Sets:
        """How much each set lacks, as one number; count tells how many GPUs are in a set."""
        lack = members & 0
        for far in self.far:
            lack = lack * _DIGIT + count(members & far)
        near = members & 0
        for gpus, nics in self.near:
            near = near + (members & gpus > 0) * nics
        unserved = members & 0
        for gpus, served in self.shortages:
            unserved = unserved + _beyond(count(members & gpus), served)
        return (lack * _DIGIT + _beyond(members * 0 + self.nics, near)) * _DIGIT + unserved


def _beyond(here: Sets, most: Sets | int) -> Sets:
    """How far numbers are beyond others; 0 where they are not."""
    return (here - most) * (here > most)


def _apart(domains: tuple[int, ...], a: int, b: int) -> bool:
    return not any(domain >> a & domain >> b & 1 for domain in domains)


def bits(mask: int) -> Iterator[int]:
    """Yield the indices of the set bits, lowest first."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """What is known of each set of GPUs [mask]: numbers that order sets; less is better of links and crossings.

    path[mask][last] is as `shortest_paths` gives it, width the NVLinks inside, togetherness as in `GpuLinks`.
    """

    path: Ints
    links: Ints
    width: Ints
    crossings: Ints
    togetherness: Ints


class Exhaustive:
    """Compares all sets. Tables are indexed by set (a mask of GPUs) and filled at the first question."""

    def __init__(self, links: GpuLinks) -> None:
        assert links.gpus <= EXACT_GPUS, f"{links.gpus} GPUs"
        self._links = links
        self._matrix = links.penalties()
        shape = (links.gpus, links.gpus)
        self._penalty = np.array(self._matrix, dtype=np.int64).reshape(shape)
        self._tables: _Tables | None = None

    def choose(
        self, free: int, count: int, nearby: NearbyResources | None = None
    ) -> tuple[int, ...]:
        """Return the best `count` (at least 1) GPUs of the mask `free` in ring order."""
        table = self._tables or self._fill()
        sets = sets_by_size(self._links.gpus)[count]
        sets = sets[(sets & ~free) == 0]
        sets = _least(sets, table.links[sets])
        if nearby is not None:
            size_of_set = sizes_of_sets(self._links.gpus)
            sets = _least(sets, nearby.lack(sets, lambda parts: size_of_set[parts]))
        sets = _least(sets, -table.width[free ^ sets])
        sets = _least(sets, table.crossings[sets])
        best = int(sets[np.argmax(table.togetherness[free ^ sets])])
        return self._ring(table.path, best)

    def _fill(self) -> "_Tables":
        path = shortest_paths(self._penalty)
        ring = (path + self._penalty[:, lowest_of_set(self._links.gpus)].T).min(axis=1)
        ring[0] = 0
        every = np.arange(1 << self._links.gpus, dtype=np.int64)
        pairs = _pair_sums(self._penalty, every)
        ring_links, ring_crossings = np.divmod(ring, self._links.links_from)
        pair_links, pair_crossings = np.divmod(pairs, self._links.links_from)
        width = np.array(self._links.width, dtype=np.int64).reshape(self._links.gpus, -1)
        self._tables = _Tables(
            path,
            links=_lexicographic(ring_links, pair_links),
            width=_pair_sums(width, every),
            crossings=_lexicographic(ring_crossings, pair_crossings),
            togetherness=_togetherness_of_sets(self._links, every),
        )
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


def _least(sets: Ints, measure: Ints) -> Ints:
    """Keep the sets of which a measure is least."""
    kept: Ints = sets[measure == measure.min()]
    return kept


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


@lru_cache(maxsize=EXACT_GPUS + 1)
def sizes_of_sets(gpus: int) -> Ints:
    """Return how many GPUs are in each set [mask]."""
    return popcounts(np.arange(1 << gpus, dtype=np.int64), gpus)


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


def _togetherness_of_sets(links: GpuLinks, sets: Ints) -> Ints:
    """Return `GpuLinks.togetherness` of each set as one number that orders alike."""
    found = np.zeros_like(sets)
    for domains in (links.switches, links.sockets):
        squares = [popcounts(sets & np.int64(domain), links.gpus) ** 2 for domain in domains]
        found = found * (links.gpus**2 + 1) + sum(squares, np.zeros_like(sets))
    return found


_NOTHING = NearbyResources((), (), 0, ())
"""No resources nearby are known, so no set lacks any."""


class Greedy:
    """Grows a set from each free GPU; for machines with more GPUs than can be searched whole."""

    def __init__(self, links: GpuLinks) -> None:
        self._links = links
        self._penalty = links.penalties()

    def choose(
        self, free: int, count: int, nearby: NearbyResources | None = None
    ) -> tuple[int, ...]:
        """Return a good set of `count` (at least 1) GPUs of the mask `free`, nearest neighbours consecutive."""
        nearby = nearby or _NOTHING
        grown = {self._grow(seed, free, count, nearby) for seed in bits(free)}
        judged = {members: self._judge(members, free, nearby) for members in grown}
        best = min(grown, key=lambda members: (judged[members], tuple(bits(members))))
        return turned(self._chain(best), self._penalty)

    def _grow(self, seed: int, free: int, count: int, nearby: NearbyResources) -> int:
        """Add the GPU with the least penalty to those taken; among equals the one whose domains are most broken."""
        room = [
            tuple((free & domain).bit_count() for domains in (self._links.switches, self._links.sockets)
                  for domain in domains if domain >> gpu & 1)
            for gpu in range(self._links.gpus)
        ]  # fmt: skip
        links_from = self._links.links_from
        members, added = 1 << seed, list(self._penalty[seed])
        for _ in range(count - 1):
            lack = [nearby.lack(members | 1 << gpu, int.bit_count) for gpu in range(len(added))]
            gpu = min(
                bits(free & ~members),
                key=lambda gpu: (added[gpu] // links_from, lack[gpu], added[gpu], room[gpu], gpu),
            )
            members |= 1 << gpu
            added = [old + new for old, new in zip(added, self._penalty[gpu], strict=True)]
        return members

    def _judge(self, members: int, free: int, nearby: NearbyResources) -> tuple[int, ...]:
        order = self._chain(members)
        hops = zip(order, order[1:] + order[:1], strict=True)
        ring = sum(self._penalty[a][b] for a, b in hops)
        pairs = sum(self._penalty[a][b] for a, b in combinations(order, 2))
        links_from = self._links.links_from
        return (
            ring // links_from,
            pairs // links_from,
            nearby.lack(members, int.bit_count),
            -self._links.width_inside(free ^ members),
            ring,
            pairs,
            *(-together for together in self._links.togetherness(free ^ members)),
        )

    def _chain(self, members: int) -> tuple[int, ...]:
        """Order a set from its lowest GPU, each followed by the nearest that is left."""
        order = [(members & -members).bit_length() - 1]
        left = members & (members - 1)
        while left:
            order.append(min(bits(left), key=lambda gpu: (self._penalty[order[-1]][gpu], gpu)))
            left ^= 1 << order[-1]
        return tuple(order)
