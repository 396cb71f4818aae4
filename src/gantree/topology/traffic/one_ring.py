"""Paths of a single group in plain Python loops: faster for one gang than the arrays of `paths`.

The same figures as `paths.read_paths` gives, for groups that run alone, on fabrics where the tiers outside the node
bound nothing: no capacity of up-links and no rate per GPU is told, all are whole and idle, and no NVLink domain spans
nodes. What is left are the ring inside each node, its NICs, and the latency of the tiers that a hop crosses. Other
fabrics have no such short way (`None`).
"""

from collections.abc import Iterable, Sequence
from math import fsum, inf, isnan
from operator import itemgetter, ne
from typing import NamedTuple

import numpy as np

from gantree.topology.hardware.masks import mask_of
from gantree.topology.traffic.paths import Paths, figures_of
from gantree.topology.traffic.traffic_index import NIC, TrafficIndex


class Ring(NamedTuple):
    """`Paths` of one group, as numbers: all that the price of a collective over it depends on."""

    ranks: int
    islands: int
    most_gpus: int
    ring_GBps: float
    ring_limit: int
    nvlink: bool
    in_switch_GBps: float
    out_GBps: float
    out_limit: int
    hop_us: float
    longest_us: float
    generation: int

    def paths(self) -> Paths:
        """The same as arrays of one group."""
        ranks, *figures = self
        return Paths(ranks, *(np.array([figure]) for figure in figures))


class OneRing:
    """Reads groups of one traffic_index; the figures of each set of GPUs are looked up once."""

    def __init__(self, traffic_index: TrafficIndex) -> None:
        """Build it with `of`."""
        self._traffic_index = traffic_index
        self._kind_of_node: list[int] = traffic_index.kind_of_node.tolist()
        self._tiers = tuple(
            (
                traffic_index.tiers[tier].latency_us,
                traffic_index.fabric.domain_of_node[tier].tolist(),
            )
            for tier in range(traffic_index.fabric.node_tier, 0, -1)
        )
        self._figures: dict[tuple[int, int], tuple[float, ...]] = {}
        self._mask_of_gpus: dict[tuple[int, ...], int] = {}
        self._nic = traffic_index.code(NIC)

    @classmethod
    def of(cls, traffic_index: TrafficIndex) -> "OneRing | None":
        """The short way on a traffic_index; None where the tiers of it bound traffic."""
        tiers = traffic_index.tiers[1:]
        free = all(tier.plain and isnan(tier.GPU_GBps) for tier in tiers)
        return cls(traffic_index) if free and not traffic_index.islands_span_nodes else None

    def read(self, members: Iterable[tuple[int, tuple[int, ...]]]) -> "Ring":
        """What the ranks of members come to, one a GPU, each member a (node, its GPUs) by index; at least two ranks."""
        mask_of_node: dict[int, int] = {}
        ranks_of_node: dict[int, int] = {}
        masks = self._mask_of_gpus
        for node, gpus in members:
            mask = masks.get(gpus)
            if mask is None:
                mask = masks[gpus] = mask_of(gpus)
            mask_of_node[node] = mask_of_node.get(node, 0) | mask
            ranks_of_node[node] = ranks_of_node.get(node, 0) + len(gpus)
        nodes, many = list(mask_of_node), len(mask_of_node) > 1
        rows = [self._row(node, mask) for node, mask in mask_of_node.items()]
        tightest = min(rows, key=itemgetter(0))
        hop_us = self._hops_us(nodes) if many else [0.0]
        return Ring(
            ranks=sum(ranks_of_node.values()),
            islands=len(nodes),
            most_gpus=max(ranks_of_node.values()),
            ring_GBps=tightest[0],
            ring_limit=int(tightest[2]),
            nvlink=all(row[3] for row in rows),
            in_switch_GBps=_in_switch(rows, ranks_of_node.values(), many),
            out_GBps=min([row[8] for row in rows]) if many else inf,
            out_limit=self._nic if many else 0,
            hop_us=fsum(hop_us) / len(nodes),
            longest_us=max(hop_us),
            generation=int(min([row[7] for row in rows])),
        )

    def _row(self, node: int, mask: int) -> tuple[float, ...]:
        """`figures_of` the GPUs of a mask on a node that send alone."""
        key = (self._kind_of_node[node], mask)
        found = self._figures.get(key)
        if found is None:
            found = self._figures[key] = figures_of(self._traffic_index, *key, mask)
        return found

    def _hops_us(self, nodes: list[int]) -> list[float]:
        """Microseconds of each hop of the closed ring over nodes: those of the slowest tier that it leaves."""
        hop_us = [0.0] * len(nodes)
        of_nodes = itemgetter(*nodes)
        for latency_us, domain_of_node in self._tiers:
            domains = of_nodes(domain_of_node)
            leaves = list(map(ne, domains, (*domains[1:], domains[0])))
            if True not in leaves:
                break
            hop_us = [
                latency_us if leaves_here and latency_us > hop else hop
                for hop, leaves_here in zip(hop_us, leaves, strict=True)
            ]
        return hop_us


def _in_switch(rows: Sequence[tuple[float, ...]], gpus: Iterable[int], many: bool) -> float:
    """Bytes of the message over time at which switches add in the slowest node; 0 where one of them cannot."""
    least = inf
    for row, count in zip(rows, gpus, strict=True):
        nvlink, port_GBps, share = row[3], row[4], row[6]
        if not nvlink or port_GBps <= 0 or (many and count == 1):
            return 0.0
        least = min(least, share * port_GBps / (1 + 1 / count))
    return least
