"""Traffic between pairs of ranks: all-to-all, and send/recv along the ranks. Rings and trees are in `collectives`.

In an all-to-all each rank sends 1/n of its buffer to every rank. What holds it up is the slowest of: the exchange
inside an island, what an island's NICs let out, what a GPU has for a tier that it crosses, and the up-links of a
domain, which all its ranks of the gang share. In a send/recv each rank sends to the next one in rank order, as
nccl-tests do it; the hops that leave a node share its NICs, as do those that reach it, and those that leave a domain
its up-links.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from gantree.topology.cost.collectives import Estimate, of_form
from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray
from gantree.topology.hardware.constants import (
    BASE_RING_US,
    LAUNCH_US,
    NET_OVERHEAD_US,
    NET_RING_MORE_US,
    NVLINK_RING_US,
    PCI_RING_US,
    SIMPLE,
)
from gantree.topology.traffic.equal_rows import number_equal_rows
from gantree.topology.traffic.paths import Islands, read_islands, read_slots
from gantree.topology.traffic.traffic_index import NIC, TrafficIndex


@dataclass(slots=True)
class _Slowest:
    """Slowest rate of each group so far, as microseconds a byte, and the code of what it is (of equals the first)."""

    us_per_byte: FloatArray
    limit: IntArray

    def against(self, group: IntArray, us_per_byte: FloatArray, limit: IntArray | int) -> None:
        """Hold entries (their group, their rate) against it."""
        worst = np.zeros(len(self.us_per_byte))
        np.maximum.at(worst, group, us_per_byte)
        codes = np.broadcast_to(np.asarray(limit), us_per_byte.shape)
        first = np.full(len(worst), len(group))
        entries = np.arange(len(group), dtype=np.int64)
        np.minimum.at(first, group, np.where(us_per_byte == worst[group], entries, len(group)))
        slower = worst > self.us_per_byte
        self.us_per_byte[slower] = worst[slower]
        self.limit[slower] = codes[first[slower]]


def _per_byte(part: FloatArray, GBps: FloatArray) -> FloatArray:
    """Microseconds that each byte of the message takes of a link that carries `part` of it."""
    return np.where(part > 0, part / (GBps * 1e3), 0.0)


def all_to_all(
    traffic_index: TrafficIndex,
    nodes: IntArray,
    gpus: IntArray,
    sharing: IntArray,
    size_bytes: float,
) -> Estimate:
    """Price all-to-alls of buffers of size_bytes a rank."""
    groups, ranks = nodes.shape
    islands = read_islands(traffic_index, read_slots(traffic_index, nodes, gpus), sharing)
    slowest = _Slowest(np.zeros(groups), np.zeros(groups, dtype=np.int64))
    own, apart = islands.gpus - 1, islands.gpus * (ranks - islands.gpus)
    slowest.against(islands.group, _per_byte(own / ranks, islands.exchange_GBps), islands.limit)
    slowest.against(
        islands.group, _per_byte(apart / ranks, islands.out_GBps), traffic_index.code(NIC)
    )
    longest_us = np.zeros(groups)
    for number in range(traffic_index.island_tier, 0, -1):
        _cross_all(traffic_index, number, islands, ranks, sharing, slowest, longest_us)
    first = islands.first_of_group
    step_us = np.where(
        np.logical_and.reduceat(islands.nvlink, first),
        NVLINK_RING_US[SIMPLE],
        PCI_RING_US[SIMPLE],
    )
    most = np.maximum.reduceat(islands.gpus, first)
    latency = BASE_RING_US[SIMPLE] + (most - 1) * step_us + _net_us(longest_us, ranks - most)
    return _priced(latency, size_bytes, slowest)


def _cross_all(
    traffic_index: TrafficIndex,
    number: int,
    islands: Islands,
    ranks: int,
    sharing: IntArray,
    slowest: _Slowest,
    longest_us: FloatArray,
) -> None:
    """Hold one tier against the groups whose ranks stand in several of its domains."""
    tier, domain = (
        traffic_index.tiers[number],
        traffic_index.fabric.domain_of_node[number][islands.node],
    )
    _, which = number_equal_rows(islands.group, domain)
    inside = np.bincount(which, weights=islands.gpus)[which]
    outside = ranks - inside
    apart = outside > 0
    np.maximum.at(longest_us, islands.group[apart], tier.latency_us)
    code = traffic_index.code(traffic_index.fabric.tiers[number])
    if not np.isnan(tier.GPU_GBps):
        rate = tier.GPU_GBps * tier.residual[domain]
        slowest.against(islands.group, _per_byte(outside / ranks, rate), code)
    elif number < traffic_index.fabric.node_tier:
        rate = islands.out_GBps * tier.residual[domain]
        slowest.against(islands.group, _per_byte(islands.gpus * outside / ranks, rate), code)
    if not tier.plain:
        leaving = islands.gpus * outside / ranks
        _, uplink = number_equal_rows(sharing[islands.group], domain)
        load = np.bincount(uplink, weights=leaving)[uplink].astype(np.float64)
        rate = tier.uplink_GBps[domain] * tier.residual[domain]
        slowest.against(islands.group, _per_byte(load, rate), code)


def send_recv(
    traffic_index: TrafficIndex,
    nodes: IntArray,
    gpus: IntArray,
    sharing: IntArray,
    size_bytes: float,
) -> Estimate:
    """Price a send of size_bytes from each rank to the next, the last to the first, all at once."""
    groups = nodes.shape[0]
    hops = _Hops.of(traffic_index, nodes, gpus, sharing)
    slowest = _Slowest(np.zeros(groups), np.zeros(groups, dtype=np.int64))
    one = np.ones(len(hops.group))
    near = ~hops.apart
    slowest.against(hops.group[near], _per_byte(one[near], hops.GBps[near]), hops.limit[near])
    slowest.against(
        hops.group[hops.apart],
        _per_byte(one[hops.apart], hops.GBps[hops.apart]),
        traffic_index.code(NIC),
    )
    longest_us = np.zeros(groups)
    for number in range(traffic_index.island_tier, 0, -1):
        _cross_hops(traffic_index, number, hops, slowest, longest_us)
    pcie = np.zeros(groups, dtype=np.bool_)
    np.logical_or.at(pcie, hops.group[near], ~hops.nvlink[near])
    step_us = np.where(pcie, PCI_RING_US[SIMPLE], NVLINK_RING_US[SIMPLE])
    latency = BASE_RING_US[SIMPLE] + np.where(longest_us > 0, _net_us(longest_us, 0), step_us)
    return _priced(latency, size_bytes, slowest)


@dataclass(frozen=True, slots=True)
class _Hops:
    """Each rank's hop to the next: where from and to, whether it leaves the island, and the least rate of its ends.

    sharing is the number of those groups whose hops run at the same time.
    """

    group: IntArray
    here: IntArray
    there: IntArray
    apart: BoolArray
    GBps: FloatArray
    limit: IntArray
    nvlink: BoolArray
    sharing: IntArray

    @classmethod
    def of(
        cls, traffic_index: TrafficIndex, nodes: IntArray, gpus: IntArray, sharing: IntArray
    ) -> "_Hops":
        here, gpu = nodes.ravel(), gpus.ravel()
        there, peer = np.roll(nodes, -1, axis=1).ravel(), np.roll(gpus, -1, axis=1).ravel()
        group = np.repeat(np.arange(nodes.shape[0], dtype=np.int64), nodes.shape[1])
        apart = traffic_index.island_of_node[here] != traffic_index.island_of_node[there]
        at_once = sharing[group]
        through_nics = np.minimum(
            _through_nics(traffic_index, at_once, here, gpu, apart),
            _through_nics(traffic_index, at_once, there, peer, apart),
        )
        kind, to = traffic_index.kind_of_node[here], np.where(here == there, peer, -1)
        first, which = number_equal_rows(kind, gpu, to, apart.astype(np.int64))
        rows = [
            _hop(traffic_index, int(kind[n]), int(gpu[n]), int(to[n]), bool(apart[n]))
            for n in first.tolist()
        ]
        GBps, limit, nvlink = (np.array(column)[which] for column in zip(*rows, strict=True))
        GBps = np.where(apart, through_nics, GBps)
        return cls(group, here, there, apart, GBps, limit, nvlink, at_once)


def _through_nics(
    traffic_index: TrafficIndex, sharing: IntArray, node: IntArray, gpu: IntArray, apart: BoolArray
) -> FloatArray:
    """What each hop that leaves its island has of the NICs at one end of it, beside other hops there."""
    users, masks = _sets_of_users(sharing, node, gpu, apart)
    kind = traffic_index.kind_of_node[node]
    first, which = number_equal_rows(kind, gpu, users)
    rates = [
        traffic_index.out_GBps(
            int(kind[n]), 1 << int(gpu[n]), masks[int(users[n])] | 1 << int(gpu[n])
        )
        for n in first.tolist()
    ]
    through: FloatArray = np.array(rates)[which] * traffic_index.residual_of_node[node]
    return through


def _sets_of_users(
    sharing: IntArray, node: IntArray, gpu: IntArray, apart: BoolArray
) -> tuple[IntArray, list[int]]:
    """(number of each hop's set, the sets): GPUs whose hops leave the node, or reach it, at the same time, as masks."""
    _, which = number_equal_rows(sharing, node)
    masks = [0] * (int(which.max()) + 1)
    for at, one in zip(which[apart].tolist(), gpu[apart].tolist(), strict=True):
        masks[at] |= 1 << one
    distinct = {mask: number for number, mask in enumerate(dict.fromkeys(masks))}
    numbers = np.array([distinct[mask] for mask in masks], dtype=np.int64)
    return numbers[which], list(distinct)


def _hop(
    traffic_index: TrafficIndex, kind: int, gpu: int, peer: int, apart: bool
) -> tuple[float, int, bool]:
    """(GB/s, code of the link, whether it is NVLink) of one hop; over NICs its rate is `_through_nics`."""
    host = traffic_index.hosts[kind]
    if apart:
        return inf, traffic_index.code(NIC), False
    if peer < 0:
        return host.port_GBps_of((gpu,)), traffic_index.code(host.port_link), True
    if peer == gpu:
        return inf, 0, True
    pair = traffic_index.inside(kind, 1 << gpu | 1 << peer)
    return pair.ring_GBps, traffic_index.code(pair.weakest), pair.nvlink


def _cross_hops(
    traffic_index: TrafficIndex, number: int, hops: _Hops, slowest: _Slowest, longest_us: FloatArray
) -> None:
    """Hold one tier against the hops that leave its domains."""
    tier, domain_of_node = traffic_index.tiers[number], traffic_index.fabric.domain_of_node[number]
    domain = domain_of_node[hops.here]
    leaves = domain != domain_of_node[hops.there]
    if not leaves.any():
        return
    there = domain_of_node[hops.there[leaves]]
    domain, group = domain[leaves], hops.group[leaves]
    residual = np.minimum(tier.residual[domain], tier.residual[there])
    np.maximum.at(longest_us, group, tier.latency_us)
    code = traffic_index.code(traffic_index.fabric.tiers[number])
    if not np.isnan(tier.GPU_GBps) or number < traffic_index.fabric.node_tier:
        whole = hops.GBps[leaves] if np.isnan(tier.GPU_GBps) else np.full(len(group), tier.GPU_GBps)
        slowest.against(group, _per_byte(np.ones(len(group)), whole * residual), code)
    if not tier.plain:
        _, which = number_equal_rows(hops.sharing[leaves], domain)
        load = np.bincount(which)[which].astype(np.float64)
        rate = tier.uplink_GBps[domain] * tier.residual[domain]
        slowest.against(group, _per_byte(load, rate), code)


def _net_us(longest_us: FloatArray, more_peers: IntArray | int) -> FloatArray:
    """The first message over the network, and what each further peer adds."""
    first = longest_us + NET_RING_MORE_US[SIMPLE]
    return np.where(longest_us > 0, first + more_peers * NET_OVERHEAD_US[0], 0.0)


def _priced(latency_us: FloatArray, size_bytes: float, slowest: _Slowest) -> Estimate:
    transfer_us = slowest.us_per_byte * size_bytes
    us = of_form(latency_us, transfer_us)
    return Estimate(us, slowest.limit, LAUNCH_US + latency_us > transfer_us)
