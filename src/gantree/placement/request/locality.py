"""Locations of a job's data, and the time that a node takes to fetch what it lacks.

A data set is at hand on every node of the domains that the site names for it (`Cluster.data`). Elsewhere each node
reads all of it over the network, at line rate: the least of what its NICs carry and, for each tier whose domain must
be left to reach the nearest domain that has it, of the up-links of its domains there. Where nobody has it, it
comes from outside, over all of these. What a store can deliver is not known here: these are seconds to compare places
by, and no promise.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from gantree.model.jobs import DataNeed
from gantree.topology.fabric.fabric import BoolArray, Fabric, FloatArray

GB_PER_GIB = (1 << 30) / 1e9

DEFAULT_GBPS = 12.5
"""Rate in GB/s where the site tells none: one link of 100 Gbit/s."""


def fetch_s_of_node(fabric: Fabric, data: Sequence[DataNeed]) -> FloatArray:
    """Seconds in which each node fetches what it lacks of the data, one data set after the other."""
    seconds = np.zeros(len(fabric.nodes))
    for need in data:
        seconds += need.GiB * GB_PER_GIB / _rate_of_node(fabric, need.name)
    return seconds


def nodes_with_data(fabric: Fabric, data: Sequence[DataNeed]) -> tuple[Hashable, ...]:
    """Names of the nodes that fetch least, and of those that fetch less than the most; () if all are alike."""
    seconds = fetch_s_of_node(fabric, data)
    if not data or (seconds == seconds[0]).all():
        return ()
    least: BoolArray = seconds == seconds.min()
    less: BoolArray = seconds < seconds.max()
    asked = tuple((need.name, need.GiB) for need in data)
    names: list[Hashable] = []
    for word, mask in (("least to fetch", least), ("less to fetch", less)):
        fabric.nodes_named[word, asked] = mask
        names.append((word, asked))
    return tuple(names)


def _rate_of_node(fabric: Fabric, name: str) -> FloatArray:
    """GB/s at which each node reads a data set: inf where it is at hand."""
    holders = [
        fabric.find(held.tier, held.domain) for held in fabric.cluster.data if held.name == name
    ]
    near = _near(fabric, holders)
    rate = np.full(len(fabric.nodes), np.inf)
    for tier in range(fabric.node_tier, 0, -1):
        leaves = ~near[tier]
        uplink = fabric.uplink_GBps_of_domain[tier][fabric.domain_of_node[tier]]
        rate[leaves] = np.fmin(rate, uplink)[leaves]
    return np.where(near[fabric.node_tier], np.inf, np.where(np.isfinite(rate), rate, DEFAULT_GBPS))


def _near(fabric: Fabric, holders: Sequence[tuple[int, int]]) -> list[BoolArray]:
    """near[tier][node]: the data lies in the node's own domain of the tier, or is at hand on it."""
    near = [np.zeros(len(fabric.nodes), dtype=np.bool_) for _ in range(fabric.node_tier + 1)]
    for held_at, domain in holders:
        first, stop = fabric.first_node_of_domain[held_at][domain : domain + 2].tolist()
        for tier in range(fabric.node_tier + 1):
            if tier >= held_at:
                near[tier][first:stop] = True
            else:
                around = fabric.domain_of_node[tier]
                near[tier][around == around[first]] = True
    return near
