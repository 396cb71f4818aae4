"""Kueue's topology-aware scheduling: counts are summed upwards, then the fewest domains are chosen level by level.

After `pkg/cache/tas_flavor_snapshot.go` of kubernetes-sigs/kueue (its default profile, a podset with a preferred level
and no slices); state is the count of members that fit a domain:

1. States of nodes are summed up to every level.
2. At the preferred level the domain with the least state that holds the gang is taken; where none does, the level
   above is asked, and so on. Where no domain of the widest level does, domains are taken by state, largest first, and
   for what is left at last the one with the least state that holds it.
3. Down the levels, the children of all chosen domains are sorted by state, largest first, and taken in the same way
   until the gang is held. Parents' shares are not kept to: only the number of domains is looked at.

Equal states go by names. Members are numbered by the names of their domains.
"""

from collections.abc import Sequence

import numpy as np

from gantree.topology.fabric.fabric import Fabric, IntArray


def level_counting(
    fabric: Fabric, slots_of_node: Sequence[int], members: int, preferred: str
) -> list[tuple[int, int]]:
    """(node, members there), by the names of the nodes' domains. ValueError where they do not fit.

    slots_of_node are the members that each node holds; preferred is a tier of the fabric.
    """
    states = _states(fabric, slots_of_node)
    level = fabric.tiers.index(preferred)
    while level > 1 and max(states[level]) < members:
        level -= 1
    chosen = _fewest(_sorted(fabric, level, range(fabric.domains(level)), states), members)
    for below in range(level + 1, fabric.node_tier + 1):
        children = _children(fabric, below, [domain for domain, _ in chosen])
        chosen = _fewest(_sorted(fabric, below, children, states), members)
    return sorted(chosen, key=lambda place: _names(fabric, fabric.node_tier, place[0]))


def _states(fabric: Fabric, slots_of_node: Sequence[int]) -> list[list[int]]:
    slots = np.asarray(slots_of_node, dtype=np.int64)
    return [
        np.bincount(domains, weights=slots, minlength=fabric.domains(tier)).astype(int).tolist()
        for tier, domains in enumerate(fabric.domain_of_node)
    ]


def _sorted(
    fabric: Fabric, level: int, domains: Sequence[int], states: list[list[int]]
) -> list[tuple[int, int]]:
    """(domain, state), largest state first."""
    of_level = states[level]
    order = sorted(domains, key=lambda d: (-of_level[d], _names(fabric, level, d)))
    return [(domain, of_level[domain]) for domain in order]


def _fewest(domains: list[tuple[int, int]], members: int) -> list[tuple[int, int]]:
    """(domain, members there): domains by state, the last one as tight as can be."""
    taken: list[tuple[int, int]] = []
    left = members
    for number, (domain, state) in enumerate(domains):
        if state >= left:
            holding = [each for each in domains[number:] if each[1] >= left]
            tightest, _ = min(holding, key=lambda each: each[1])
            return [*taken, (tightest, left)]
        taken.append((domain, state))
        left -= state
    raise ValueError(f"{members} members, but only {members - left} slots are free")


def _children(fabric: Fabric, level: int, parents: Sequence[int]) -> list[int]:
    first: IntArray = fabric.first_child_of_domain[level - 1]
    return [child for parent in parents for child in range(first[parent], first[parent + 1])]


def _names(fabric: Fabric, level: int, domain: int) -> tuple[str, ...]:
    if level == fabric.node_tier:
        node = fabric.nodes[domain]
        return (*node.at, node.name)
    return tuple(fabric.names_of_domain[level][domain].split("/"))
