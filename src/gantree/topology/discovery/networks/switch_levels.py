"""The level of each switch of a fabric: leaves are level 1, others count the cables down to them.

No source states which switch is a leaf, and a leaf is not just what hosts hang on: the server that runs the fabric
manager often hangs on a spine or on a core switch. A switch with hosts is above the leaves when it has at most
half as many NICs as is usual, and either most of its cables lead to switches with as many as usual (a spine), or
its neighbours belong to several pods, that is, join sets of leaves that nothing else near them joins (a core switch).
In a mesh, where half of the cables of switches with many hosts lead to others like them, all of them are leaves.
Distance is counted from the leaves, so an uneven tree gives levels too; other cases are in `switch_domains`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MAX_LEVELS = 6
"""Switches further away than this are counted as of this level; a fabric that is deeper is a chain, not a tree."""

Link = tuple[int, int, float | None]
"""Two different switches, by number, and the GB/s of one cable between them, None where not given."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """The cables that are up, with switches, hosts and NICs as numbers.

    switch_of_nic and host_of_nic are by NIC, None where it hangs on no switch, or in no host that is known. Switches
    are numbered in the order of their names, hosts in the order in which their first NIC appears.
    """

    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    links: tuple[Link, ...]
    switch_of_nic: tuple[int | None, ...]
    host_of_nic: tuple[int | None, ...]


class Sets:
    """Disjoint sets of numbers; each is known by its smallest member."""

    def __init__(self, size: int) -> None:
        self._above = list(range(size))

    def find(self, item: int) -> int:
        """Return the smallest member of the set that an item is in."""
        above = self._above
        while above[item] != item:
            above[item] = above[above[item]]
            item = above[item]
        return item

    def join(self, a: int, b: int) -> None:
        """Make one set of two."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self._above[max(a, b)] = min(a, b)


@dataclass(frozen=True, slots=True)
class Levels:
    """Level of each switch, 0 where it leads to no host; those with hosts that are above the leaves; odd things."""

    of_switch: tuple[int, ...]
    above: tuple[int, ...] = ()
    too_far: int = 0


def levels_of(wiring: Wiring, given: Sequence[int | None] = ()) -> Levels:
    """Return the level of each switch. given, where it names one for every switch, is taken as it is."""
    if given and None not in given:
        order = sorted({level for level in given if level is not None})
        level_of = {level: min(number, MAX_LEVELS) for number, level in enumerate(order, 1)}
        return Levels(tuple(level_of[level] for level in given if level is not None))
    neighbours = _neighbours(wiring)
    nics = Counter(switch for switch in wiring.switch_of_nic if switch is not None)
    above = _above_the_leaves(neighbours, nics)
    leaves = [switch for switch in sorted(nics) if switch not in above]
    distance = _distances(leaves, neighbours)
    levels = tuple(
        min(distance[switch], MAX_LEVELS) if switch in distance else 0
        for switch in range(len(wiring.switches))
    )
    too_far = sum(level > MAX_LEVELS for level in distance.values())
    return Levels(levels, tuple(sorted(above)), too_far)


def _neighbours(wiring: Wiring) -> list[Counter[int]]:
    """For each switch, how many cables lead to each other switch."""
    neighbours: list[Counter[int]] = [Counter() for _ in wiring.switches]
    for a, b, _ in wiring.links:
        neighbours[a][b] += 1
        neighbours[b][a] += 1
    return neighbours


def _above_the_leaves(
    neighbours: Sequence[Mapping[int, int]], nics: Mapping[int, int]
) -> frozenset[int]:
    usual = _usual(nics.values())
    dense = frozenset(switch for switch in nics if nics[switch] * 2 > usual)
    among = sum(n for a in dense for b, n in neighbours[a].items() if b in dense)
    away = sum(n for a in dense for b, n in neighbours[a].items() if b not in dense)
    if among and among >= away:
        return frozenset()
    pods = _pods(dense, nics, neighbours)
    return frozenset(
        switch
        for switch in nics
        if switch not in dense and _is_above(neighbours[switch], dense, pods)
    )


def _usual(counts: Iterable[int]) -> int:
    """Return a count such that at least half of all NICs hang on switches with as many or more."""
    ordered = sorted(counts, reverse=True)
    half, seen = sum(ordered) / 2, 0
    for count in ordered:
        seen += count
        if seen >= half:
            return count
    return 0


def _pods(
    dense: frozenset[int], nics: Mapping[int, int], neighbours: Sequence[Mapping[int, int]]
) -> dict[int, int]:
    """Number the sets of leaves and of the switches without hosts right above them; spine -> its pod."""
    sets = Sets(len(neighbours))
    spines = {b: None for a in sorted(dense) for b in neighbours[a] if b not in nics}
    for spine in spines:
        for leaf in neighbours[spine]:
            if leaf in dense:
                sets.join(spine, leaf)
    return {spine: sets.find(spine) for spine in spines}


def _is_above(cables: Mapping[int, int], dense: frozenset[int], pods: Mapping[int, int]) -> bool:
    to_leaves = sum(n for switch, n in cables.items() if switch in dense)
    return to_leaves * 2 > sum(cables.values()) or len({pods[s] for s in cables if s in pods}) > 1


def _distances(leaves: Sequence[int], neighbours: Sequence[Mapping[int, int]]) -> dict[int, int]:
    distance = dict.fromkeys(leaves, 1)
    ring = list(leaves)
    while ring:
        following = []
        for a in ring:
            for b in neighbours[a]:
                if b not in distance:
                    distance[b] = distance[a] + 1
                    following.append(b)
        ring = following
    return distance


def leaf_groups(wiring: Wiring, levels: Sequence[int]) -> dict[int, int]:
    """Return leaf -> the first leaf of its group: leaves that mostly the same hosts hang on.

    Two leaves belong together when more than half of the hosts on the fuller one hang on both, so neither a
    server with a leg in each of two units, nor a storage leaf that many units share, makes them one.
    """
    leaves_of_host: dict[int, set[int]] = defaultdict(set)
    for switch, host in zip(wiring.switch_of_nic, wiring.host_of_nic, strict=True):
        if switch is not None and host is not None and levels[switch] == 1:
            leaves_of_host[host].add(switch)
    hosts_on = Counter(leaf for leaves in leaves_of_host.values() for leaf in leaves)
    shared: Counter[tuple[int, int]] = Counter()
    for leaves in leaves_of_host.values():
        shared.update(_pairs_nearby(sorted(leaves)))
    sets = Sets(len(wiring.switches))
    for (a, b), both in shared.items():
        if both * 2 > max(hosts_on[a], hosts_on[b]):
            sets.join(a, b)
    return {leaf: sets.find(leaf) for leaf, level in enumerate(levels) if level == 1}


_NEARBY = 16
"""A host's leaves are compared with so many others of it; all of them in any machine that exists."""


def _pairs_nearby(leaves: Sequence[int]) -> Iterable[tuple[int, int]]:
    return ((a, b) for i, a in enumerate(leaves) for b in leaves[i + 1 : i + 1 + _NEARBY])
