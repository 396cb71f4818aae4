"""Anti-affinity to other jobs (`topology.apart`): which nodes it leaves.

A domain is excluded as soon as a job whose name matches holds anything in it. For a tier inside the node the whole node
is excluded, which is stricter than asked. The rule binds only the job that has it: other jobs may come near it later.
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


def kept_apart(occupancy: Occupancy, apart: Sequence[Apart]) -> Occupancy:
    """The occupancy as it is for a gang with these rules: itself without any, else a copy with fewer usable nodes.

    The copy is kept until the occupancy changes or other rules come. Do not change it.
    """
    if not apart:
        return occupancy
    kept = occupancy.indexes.get(_CACHED)
    if isinstance(kept, _CachedCopy) and (kept.version, kept.apart) == (occupancy.version, apart):
        return kept.without
    without = occupancy.copy()
    without.usable_node &= ~apart_nodes(occupancy, apart)
    occupancy.indexes[_CACHED] = _CachedCopy(occupancy.version, tuple(apart), without)
    return without


def apart_nodes(occupancy: Occupancy, apart: Sequence[Apart]) -> BoolArray:
    """Mask of the excluded nodes."""
    fabric, out = occupancy.fabric, np.zeros(len(occupancy.fabric.nodes), dtype=np.bool_)
    for rule in apart:
        tier = fabric.tiers.index(rule.tier) if rule.tier in fabric.tiers else fabric.node_tier
        held = np.zeros(fabric.domains(tier), dtype=np.bool_)
        held[fabric.domain_of_node[tier][_nodes_of(occupancy, rule.jobs)]] = True
        out |= held[fabric.domain_of_node[tier]]
    return out


def job_of(owner: str) -> str:
    """The job for which something is held: owners may carry a prefix, such as "site:", "claim:" or a number."""
    prefix, colon, name = owner.partition(":")
    return name if colon and (prefix in ("site", "claim") or prefix.isdigit()) else owner


def _nodes_of(occupancy: Occupancy, patterns: Sequence[str]) -> list[int]:
    """Nodes on which jobs of these names hold something, some of them more than once."""
    matches = re.compile("|".join(map(translate, patterns))).match
    return [
        occupancy.fabric.index_of_node[member.node]
        for owner, members in occupancy.owners.items()
        if matches(job_of(owner))
        for member in members
    ]


@dataclass(frozen=True, slots=True)
class _CachedCopy:
    """The copy for some rules, and the version of the occupancy that it was made of."""

    version: int
    apart: tuple[Apart, ...]
    without: Occupancy

    def check(self, occupancy: Occupancy) -> None:
        """AssertionError if the copy should be current and is not."""
        if self.version == occupancy.version:
            out = apart_nodes(occupancy, self.apart)
            assert (self.without.usable_node == (occupancy.usable_node & ~out)).all(), "stale"
