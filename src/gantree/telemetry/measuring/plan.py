"""Groups of ranks that are timed together, so that each kind of link is measured.

Inside a node: one pair of GPUs per link class, and all GPUs. Across nodes: per tier one rank in each of the domains of
that tier that have the same domain above them (the largest such set), and all ranks. Pure; every rank makes the same
plan from the same names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from gantree.model.cluster import NO_LINK
from gantree.topology.hardware.catalog import weakness

UNKNOWN = "unknown"
"""The name of paths between GPUs of unknown link class."""
HOST = "host"
"""What joins processes of one machine that have no GPU: its memory, by way of the loopback network."""
NODE = "node"


@dataclass(frozen=True, slots=True)
class Together:
    """Ranks (or GPUs of one node) that are timed together, and what their traffic crosses."""

    within: str
    ranks: tuple[int, ...]


def gpu_sets(links: Sequence[Sequence[str]], gpus: Sequence[int]) -> tuple[Together, ...]:
    """Return the sets of GPUs of one node: the first pair of each link class, best class first, and all of them.

    links[a][b] is the class of the path between two GPUs; empty where nothing is known of any. All GPUs together
    are within the best class that joins them all, directly or over others.
    """

    def link(a: int, b: int) -> str:
        return (links[a][b] if links else NO_LINK) or UNKNOWN

    pair_of_class: dict[str, tuple[int, int]] = {}
    for a, b in combinations(gpus, 2):
        pair_of_class.setdefault(link(a, b), (a, b))
    classes = sorted(pair_of_class, key=lambda name: (weakness(name), name))
    sets = [Together(name, pair_of_class[name]) for name in classes]
    if len(gpus) > 2:
        joined = next(n for n in range(1, len(classes) + 1) if _is_joined(gpus, classes[:n], link))
        sets.append(Together(classes[joined - 1], tuple(gpus)))
    return tuple(sets)


def _is_joined(gpus: Sequence[int], classes: Sequence[str], link: object) -> bool:
    """Tell whether paths of these classes lead from the first GPU to all others."""
    assert callable(link)
    reached, waiting = {gpus[0]}, [gpus[0]]
    while waiting:
        a = waiting.pop()
        new = [b for b in gpus if b not in reached and link(a, b) in classes]
        reached.update(new)
        waiting += new
    return len(reached) == len(gpus)


def processes_of_host(count: int) -> tuple[Together, ...]:
    """Return the sets of processes of one machine without GPUs: two of them, and all."""
    sets = [Together(HOST, tuple(range(n))) for n in sorted({2, count}) if 2 <= n <= count]
    return tuple(sets)


def all_groups(
    node_of_rank: Sequence[str],
    in_first_node: Sequence[Together],
    tiers: Sequence[str] = (NODE,),
    place_of_node: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Together, ...]:
    """Return all sets of ranks to be timed, one after the other.

    in_first_node are sets of the first node's ranks, numbered from 0 within it. tiers run from wide to narrow and end
    with "node"; place_of_node names the domains of a node in all of them but the last. Nodes without a place hang
    on domains of their own.
    """
    nodes = tuple(dict.fromkeys(node_of_rank))
    local = [rank for rank, node in enumerate(node_of_rank) if node == nodes[0]]
    groups = [
        Together(each.within, tuple(local[rank] for rank in each.ranks)) for each in in_first_node
    ]
    if len(nodes) == 1:
        return tuple(groups)
    places = place_of_node or {}
    paths = {node: (*places.get(node, (node,) * (len(tiers) - 1)), node) for node in nodes}
    first_rank = {node: node_of_rank.index(node) for node in nodes}
    across = [_across(tier, paths, first_rank) for tier in range(len(tiers) - 1, -1, -1)]
    groups += [Together(tiers[tier], ranks) for tier, ranks in across if ranks]
    if len(node_of_rank) > len(nodes) or all(len(ranks) < len(nodes) for _, ranks in across):
        widest = min(tier for tier, ranks in across if ranks)
        groups.append(Together(tiers[widest], tuple(range(len(node_of_rank)))))
    return tuple(groups)


def _across(
    tier: int, paths: Mapping[str, tuple[str, ...]], first_rank: Mapping[str, int]
) -> tuple[int, tuple[int, ...]]:
    """Return one rank in each domain of a tier below one domain above it: the largest such set; () for none."""
    below: dict[tuple[str, ...], dict[str, int]] = {}
    for node, path in paths.items():
        below.setdefault(path[:tier], {}).setdefault(path[tier], first_rank[node])
    largest = max(below.values(), key=len)
    return tier, tuple(largest.values()) if len(largest) > 1 else ()
