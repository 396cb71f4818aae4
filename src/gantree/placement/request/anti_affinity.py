"""Anti-affinity to other jobs (`topology.apart`): the nodes that it excludes.

A domain is excluded as soon as a job with a matching name holds anything in it. For a tier inside the node the whole
node is excluded, which is stricter than requested. The rule binds only the job that has it: matching jobs may be placed
in its domains later.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate

import numpy as np

from gantree.model.jobs import Apart
from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.occupancy.occupancy import Occupancy

_CACHED = "the last copy without excluded nodes"


def without_excluded_domains(occupancy: Occupancy, apart: Sequence[Apart]) -> Occupancy:
    """Return the occupancy itself where there are no rules, else a copy in which excluded nodes are not usable.

    The copy is cached until the occupancy or the rules change. Do not change it.
    """
    if not apart:
        return occupancy
    kept = occupancy.indexes.get(_CACHED)
    if isinstance(kept, _CachedCopy) and (kept.version, kept.apart) == (occupancy.version, apart):
        return kept.without
    without = occupancy.copy()
    without.usable_node &= ~excluded_nodes(occupancy, apart)
    occupancy.indexes[_CACHED] = _CachedCopy(occupancy.version, tuple(apart), without)
    return without


def excluded_nodes(occupancy: Occupancy, apart: Sequence[Apart]) -> BoolArray:
    """Return the mask of excluded nodes, [node]."""
    fabric, out = occupancy.fabric, np.zeros(len(occupancy.fabric.nodes), dtype=np.bool_)
    for rule in apart:
        tier = fabric.tiers.index(rule.tier) if rule.tier in fabric.tiers else fabric.node_tier
        held = np.zeros(fabric.domains(tier), dtype=np.bool_)
        held[fabric.domain_of_node[tier][_nodes_of(occupancy, rule.jobs)]] = True
        out |= held[fabric.domain_of_node[tier]]
    return out


def job_of(owner: str) -> str:
    """Return the job of an owner, without its prefix: "site:", "claim:" or a number and a colon."""
    prefix, colon, name = owner.partition(":")
    return name if colon and (prefix in ("site", "claim") or prefix.isdigit()) else owner


def _nodes_of(occupancy: Occupancy, patterns: Sequence[str]) -> list[int]:
    """Return the nodes on which jobs of these names hold something, with duplicates."""
    matches = re.compile("|".join(map(translate, patterns))).match
    return [
        occupancy.fabric.index_of_node[member.node]
        for owner, members in occupancy.owners.items()
        if matches(job_of(owner))
        for member in members
    ]


@dataclass(frozen=True, slots=True)
class _CachedCopy:
    """A copy for some rules, and the version of the occupancy that it was made from."""

    version: int
    apart: tuple[Apart, ...]
    without: Occupancy

    def check(self, occupancy: Occupancy) -> None:
        """AssertionError if the copy should be current and is not."""
        if self.version == occupancy.version:
            out = excluded_nodes(occupancy, self.apart)
            assert (self.without.usable_node == (occupancy.usable_node & ~out)).all(), "stale"
