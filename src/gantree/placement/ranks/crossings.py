"""Counts the ring hops of a gang's groups that leave a domain, by axis of the parallelism and by tier."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gantree.placement.ranks.gang_gpus import NVLINK, GangGpus
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray


@dataclass(frozen=True, slots=True)
class AxisCrossings:
    """Hops that leave a domain, by tier, summed over the groups of an axis.

    Each group is a closed ring over its ranks in order; neighbouring stages of a pipeline are one hop. The tier
    "nvlink" stands for NVLink domains, inside the node unless the site has them above it.
    """

    axis: str
    groups: int
    group_size: int
    hops: tuple[tuple[str, int], ...]


def crossings_of(
    fabric: Fabric,
    gang_gpus: GangGpus,
    groups_of_axis: Mapping[str, IntArray],
    position_of_rank: IntArray,
) -> tuple[AxisCrossings, ...]:
    """Crossings of each axis, with the domains of every tier below the fabric and of NVLink."""
    tiers = list(fabric.tiers[1:])
    domains = list(gang_gpus.domains(fabric))
    island = np.stack(domains[-2:])
    domains = domains[:-1]
    if NVLINK not in tiers:
        tiers.append(NVLINK)
        domains.append(_numbered(island))
    found = []
    for axis, groups in groups_of_axis.items():
        hops = []
        for tier, domain in zip(tiers, domains, strict=True):
            hops.append((tier, int(np.count_nonzero(_leaves(domain[position_of_rank[groups]])))))
        found.append(AxisCrossings(axis, len(groups), groups.shape[1], tuple(hops)))
    return tuple(found)


def _numbered(parts: IntArray) -> IntArray:
    """One number for each column of parts."""
    node, island = parts
    numbered: IntArray = node * (int(island.max()) + 1) + island
    return numbered


def _leaves(domain: IntArray) -> BoolArray:
    """Which hops of each group leave a domain: domain[group, rank]; two ranks have one hop."""
    following = domain[:, 1:] if domain.shape[1] == 2 else np.roll(domain, -1, axis=1)
    leaves: BoolArray = domain[:, : following.shape[1]] != following
    return leaves
