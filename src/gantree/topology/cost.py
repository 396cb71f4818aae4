"""What traffic across a placement costs: the alpha-beta time of one all-reduce, and the hops that leave a domain.

The all-reduce is priced as NCCL runs it over a hierarchy: reduce-scatter and all-gather by a ring inside the node,
then rings of the partial results tier by tier outside. A ring over m parts moves 2(m-1)/m of its share of the
bytes over its slowest link, in 2(m-1) steps of one latency each. Inside a node the slowest link is the worst class
between neighbours in the members' GPU order (`catalog.link_GBps`). Outside, g GPUs of a part send side by side,
so each carries 1/g.

`Cluster.links[tier]` is what a GPU has when its traffic leaves a domain of that tier. Where the site says nothing
of a tier, the next narrower tier's link is taken, and for the node one 400 Gb/s NIC per GPU. The figures are specs
and NCCL's model constants, not measurements of the site; times compare places, they do not promise seconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from gantree.model.cluster import NO_LINK, Link, Machine
from gantree.model.placements import MemberPlacement, Predicted
from gantree.topology.catalog import bonded_links, link_GBps
from gantree.topology.fabric import Fabric, IntArray

GIB = 1 << 30

NODE_LINK = Link(bandwidth_GBps=50.0, latency_us=14.0)
"""One 400 Gb/s NIC per GPU (DGX H100: 8 x 400G per node); NCCL's Simple-protocol ring latency over a network."""

NVLINK_LATENCY_US = 3.4
PCIE_LATENCY_US = 5.7
"""NCCL's Simple-protocol ring latency per step, NVLink and PCIe."""


NVLINK_SHARE = 0.8
"""What a ring gets of NVLink's spec: 235 of 300 GB/s on 8 A100, 367 of 450 on 8 H200, 682 of 900 on 8 B200."""


@dataclass(frozen=True, slots=True)
class _Hop:
    """The slowest hop of a ring."""

    bandwidth_GBps: float
    latency_us: float


def predict(fabric: Fabric, members: Sequence[MemberPlacement]) -> Predicted:
    """Price a gang's place: members in rank order, at least one."""
    nodes = np.array([fabric.index_of_node[member.node] for member in members], dtype=np.int64)
    crossings = tuple(
        (fabric.tiers[tier], _hops_that_leave(fabric.domain_of_node[tier][nodes]))
        for tier in range(1, fabric.node_tier + 1)
    )
    return Predicted(comm_s=all_reduce_s(fabric, nodes, members), crossings=crossings)


def all_reduce_s(
    fabric: Fabric, nodes: IntArray, members: Sequence[MemberPlacement], size_bytes: int = GIB
) -> float:
    """Seconds of one all-reduce of size_bytes over all GPUs of the members; 0 with fewer than two GPUs."""
    gpus_on_node: dict[int, tuple[int, ...]] = {}
    for node, member in zip(nodes.tolist(), members, strict=True):
        if member.gpus:
            gpus_on_node[node] = gpus_on_node.get(node, ()) + member.gpus
    inside = max(
        (
            _ring_inside_s(fabric.machine_of_node(n), gpus, size_bytes)
            for n, gpus in gpus_on_node.items()
        ),
        default=0.0,
    )
    return inside + _rings_outside_s(fabric, gpus_on_node, size_bytes)


def _hops_that_leave(domains: IntArray) -> int:
    """Hops of the closed ring over consecutive members whose two ends lie in different domains."""
    return int(np.count_nonzero(domains != np.roll(domains, 1)))


def _rings_outside_s(fabric: Fabric, gpus_on_node: dict[int, tuple[int, ...]], size: int) -> float:
    """Rings over the parts of each domain, tier by tier from the node outwards; the slowest domain counts."""
    gpus_in_part = {node: len(gpus) for node, gpus in gpus_on_node.items()}
    nodes_of_part = {node: node for node in gpus_in_part}
    total_s = 0.0
    for tier in range(fabric.node_tier, 0, -1):
        parts: dict[int, list[int]] = {}
        for part, node in nodes_of_part.items():
            parts.setdefault(int(fabric.domain_of_node[tier - 1][node]), []).append(part)
        link = _link_of_tier(fabric, tier)
        total_s += max(
            (
                _ring_s(len(children), size / min(gpus_in_part[c] for c in children), link)
                for children in parts.values()
            ),
            default=0.0,
        )
        nodes_of_part = {domain: nodes_of_part[children[0]] for domain, children in parts.items()}
        gpus_in_part = {d: sum(gpus_in_part[c] for c in children) for d, children in parts.items()}
    return total_s


def _link_of_tier(fabric: Fabric, tier: int) -> _Hop:
    for name in fabric.tiers[tier:]:
        link = fabric.cluster.links.get(name)
        if link:
            return _Hop(link.bandwidth_GBps, link.latency_us)
    return _Hop(NODE_LINK.bandwidth_GBps, NODE_LINK.latency_us)


def _ring_inside_s(machine: Machine, gpus: tuple[int, ...], size: int) -> float:
    if len(gpus) < 2:
        return 0.0
    return _ring_s(len(gpus), size, _slowest_hop(machine.gpu, machine.links, gpus))


def _ring_s(parts: int, size_bytes: float, hop: _Hop) -> float:
    """Seconds of an all-reduce by a ring of so many parts."""
    if parts < 2:
        return 0.0
    steps = 2 * (parts - 1)
    return steps / parts * size_bytes / (hop.bandwidth_GBps * 1e9) + steps * hop.latency_us * 1e-6


@lru_cache(maxsize=4096)
def _slowest_hop(
    gpu: str | None, links: tuple[tuple[str, ...], ...], ring: tuple[int, ...]
) -> _Hop:
    hops = [_hop(gpu, links[a][b] if links else NO_LINK) for a, b in _closed(ring)]
    return min(hops, key=lambda hop: (hop.bandwidth_GBps, -hop.latency_us))


def _closed(ring: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    return pairwise((*ring, ring[0]))


def _hop(gpu: str | None, link: str) -> _Hop:
    latency_us = NVLINK_LATENCY_US if bonded_links(link) else PCIE_LATENCY_US
    share = NVLINK_SHARE if bonded_links(link) else 1.0
    return _Hop(share * link_GBps(link, gpu), latency_us)
