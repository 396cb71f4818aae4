"""Classes of nodes by speed of traffic, which a search by counts alone does not distinguish.

Counting domains finds the fastest place where all domains of a tier are alike. Where they are not (machines of several
models, a sick link, up-links of other widths), nodes are sorted in two ways, each set with a name in
`Fabric.nodes_named`, so that a gang can be searched for on it alone:

    kinds    of one kind are nodes whose machine, NICs and every domain around them are alike to traffic
    sound    what is left at the worst place between a node and the top of the fabric, NICs included, as a share of the
             best of its tier: less than 1 where something is worn, busy, or narrower than elsewhere; the sets are the
             nodes at or above each share, the soundest first

Data at hand divides nodes in the same way (`placement.request.locality`).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gantree.topology.cost.cost import pricer_of
from gantree.topology.fabric.fabric import BoolArray, Fabric, FloatArray, IntArray
from gantree.topology.traffic.equal_rows import number_equal_rows
from gantree.topology.traffic.traffic_index import TrafficIndex

MOST_SETS = 8
"""Sets of each sort that are tried, those with most nodes, or the soundest, first; each is one more search."""

SHARE_DECIMALS = 2
"""Shares that differ by less than a hundredth are one."""


@dataclass(frozen=True, slots=True)
class NodeSets:
    """Names of sets of nodes; of both sorts none where all nodes are alike."""

    kinds: tuple[Hashable, ...] = ()
    sound: tuple[Hashable, ...] = ()


@lru_cache(maxsize=8)
def node_sets(fabric: Fabric) -> NodeSets:
    """The sets of a fabric, as the cluster file has its links and their health."""
    traffic_index = pricer_of(fabric).traffic_index
    first, kind_of_node = number_equal_rows(*_keys(traffic_index))
    if len(first) == 1:
        return NodeSets()
    nodes_of_kind = np.bincount(kind_of_node).tolist()
    largest = sorted(range(len(first)), key=lambda kind: -nodes_of_kind[kind])[:MOST_SETS]
    share = _share_of_node(traffic_index).round(SHARE_DECIMALS)
    steps = sorted(set(share.tolist()), reverse=True)[:-1][:MOST_SETS]
    return NodeSets(
        kinds=tuple(_named(fabric, ("kind", kind), kind_of_node == kind) for kind in largest),
        sound=tuple(_named(fabric, ("sound", step), share >= step) for step in steps),
    )


@lru_cache(maxsize=8)
def has_uneven_machines(fabric: Fabric) -> bool:
    """Whether it matters to traffic which GPUs of a node are free: links of several classes inside a machine."""
    return any(
        len({link for a, row in enumerate(machine.links) for link in row[:a] + row[a + 1 :]}) > 1
        for machine in fabric.machines
    )


def _named(fabric: Fabric, name: Hashable, nodes: BoolArray) -> Hashable:
    fabric.nodes_named[name] = nodes
    return name


def _keys(traffic_index: TrafficIndex) -> list[IntArray]:
    """What must be equal, by node, for two nodes to be of one kind."""
    keys: list[IntArray] = [traffic_index.kind_of_node]
    for tier, domain_of_node in enumerate(traffic_index.fabric.domain_of_node[1:], start=1):
        kinds = traffic_index.tiers[tier].kind_of_domain
        number = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        keys.append(np.array([number[kind] for kind in kinds], dtype=np.int64)[domain_of_node])
    return keys


def _share_of_node(traffic_index: TrafficIndex) -> FloatArray:
    """What is left of each node's NICs, or of the up-links of a domain around it if that is less; 1 for the best.

    Beside up-links that are as wide as can be, others count for the share of the NICs below them that they carry.
    """
    fabric, kinds = traffic_index.fabric, traffic_index.kind_of_node
    nics = np.array([sum(egress.GBps_of_nic) for egress in traffic_index.egress])
    whole, now = nics[fabric.machine_index_of_node], nics[kinds]
    share = np.where(whole > 0, now / np.maximum(whole, 1e-9), 1.0)
    for tier, domain_of_node in enumerate(fabric.domain_of_node[1:], start=1):
        uplink, residual = traffic_index.tiers[tier].uplink_GBps, traffic_index.tiers[tier].residual
        most = np.full(len(uplink), uplink.max())
        if np.isinf(most[0]):
            most = np.add.reduceat(whole, fabric.first_node_of_domain[tier][:-1])
        left = np.where(most > 0, np.minimum(uplink / np.maximum(most, 1e-9), 1.0), 1.0) * residual
        share = np.minimum(share, (left / left.max())[domain_of_node])
    return share
