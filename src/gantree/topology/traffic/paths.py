"""Paths of groups of ranks: the hops of a ring over each group, and its bottleneck. No times here.

Many groups of equal size are read at once: `nodes[group, rank]` and `gpus[group, rank]`, in rank order. Inside, groups
fall into *slots* (the GPUs of a group on one node) and these into *islands* (see `traffic_index`), in flat arrays with
the group of each entry beside them, in ring order.

The ring is the one that NCCL makes: all ranks of an island beside each other, islands in the order of their first rank.
So the order of ranks inside a node changes nothing, and a shuffled order of nodes crosses the tiers above more often:
a domain whose islands stand in k runs is left k times, and its up-links carry k times the ring's bandwidth.

Groups may run side by side (all data-parallel groups of a gang, say): `sharing[group]` is equal for those that do.
They share NICs by GPUs and up-links by hops. Groups with different numbers do not know of each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray
from gantree.topology.hardware.constants import NVLINK_DOMAIN_EGRESS_GBps
from gantree.topology.hardware.masks import gpus_of
from gantree.topology.traffic.equal_rows import least_of_runs, number_equal_rows
from gantree.topology.traffic.traffic_index import NIC, TrafficIndex

MaskArray = NDArray[np.int64] | NDArray[np.object_]

MOST_GPUS_IN_INT64 = 62


@dataclass(frozen=True, slots=True)
class Slots:
    """The GPUs of one group on one node, in ring order. first_of_island has one entry per island."""

    group: IntArray
    node: IntArray
    mask: MaskArray
    gpus: IntArray
    first_of_island: IntArray


@dataclass(frozen=True, slots=True)
class Islands:
    """Islands of each group in ring order. node is one node of the island; arrays are by island.

    ring_GBps and limit: the bus bandwidth of a ring inside and the code of its weakest link, of equals the first;
    port_GBps what a GPU has over NVSwitches (0 without); in_switch_share as in `constants.Traits`; out_GBps what its
    NICs send.
    """

    group: IntArray
    node: IntArray
    gpus: IntArray
    spans_nodes: BoolArray
    ring_GBps: FloatArray
    exchange_GBps: FloatArray
    limit: IntArray
    nvlink: BoolArray
    port_GBps: FloatArray
    in_switch_share: FloatArray
    generation: IntArray
    out_GBps: FloatArray
    first_of_group: IntArray
    of_group: IntArray

    @property
    def next_in_ring(self) -> IntArray:
        """For each island the one after it in its group's closed ring."""
        following = np.arange(1, len(self.group) + 1)
        last_of_group = np.append(self.first_of_group[1:], len(self.group)) - 1
        following[last_of_group] = self.first_of_group
        return following


@dataclass(frozen=True, slots=True)
class Paths:
    """Rings and trees of groups; arrays are by group, GB/s, microseconds.

    in_switch_GBps is the rate (bytes of the message over time) at which switches inside the islands add, 0 where an
    island cannot; out_GBps what the tightest island gets out (inf where there is one island); hop_us and longest_us
    the mean and the longest step between islands. The limits are codes of `TrafficIndex.words`.
    """

    ranks: int
    islands: IntArray
    most_gpus: IntArray
    ring_GBps: FloatArray
    ring_limit: IntArray
    nvlink: BoolArray
    in_switch_GBps: FloatArray
    out_GBps: FloatArray
    out_limit: IntArray
    hop_us: FloatArray
    longest_us: FloatArray
    generation: IntArray


def each_alone(groups: int) -> IntArray:
    """The sharing of groups that do not run at the same time."""
    return np.arange(groups, dtype=np.int64)


def read_slots(traffic_index: TrafficIndex, nodes: IntArray, gpus: IntArray) -> Slots:
    """Gather the GPUs of each group by node, in ring order."""
    groups, ranks = nodes.shape
    order = ring_order(traffic_index, nodes)
    if order is not None:
        nodes = np.take_along_axis(nodes, order, axis=1)
        gpus = np.take_along_axis(gpus, order, axis=1)
    node, group = nodes.ravel(), np.repeat(np.arange(groups, dtype=np.int64), ranks)
    first_rank = _starts(node, group)
    bits = _bits(gpus.ravel(), traffic_index)
    island = traffic_index.island_of_node[node[first_rank]]
    return Slots(
        group=group[first_rank],
        node=node[first_rank],
        mask=np.bitwise_or.reduceat(bits, first_rank),
        gpus=np.diff(np.append(first_rank, groups * ranks)),
        first_of_island=_starts(island, group[first_rank]),
    )


def ring_order(traffic_index: TrafficIndex, nodes: IntArray) -> IntArray | None:
    """Positions that bring the ranks of an island, and of a node, beside each other; None where they are."""
    ranks = nodes.shape[1]
    key = _first_position(nodes)
    if traffic_index.islands_span_nodes:
        key = key + ranks * _first_position(traffic_index.island_of_node[nodes])
    if (np.diff(key, axis=1) >= 0).all():
        return None
    return np.argsort(key, axis=1, kind="stable")


def _first_position(keys: IntArray) -> IntArray:
    """For each entry of a row the position of the first entry that equals it."""
    groups, ranks = keys.shape
    order = np.argsort(keys, axis=1, kind="stable")
    in_order = np.take_along_axis(keys, order, axis=1)
    new = np.ones((groups, ranks), dtype=np.bool_)
    new[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    start = np.maximum.accumulate(np.where(new, np.arange(ranks), 0), axis=1)
    first = np.empty_like(order)
    np.put_along_axis(first, order, np.take_along_axis(order, start, axis=1), axis=1)
    return first


def _starts(key: IntArray, group: IntArray) -> IntArray:
    """Where a new run of equal keys of one group begins."""
    new = np.ones(len(key), dtype=np.bool_)
    new[1:] = (key[1:] != key[:-1]) | (group[1:] != group[:-1])
    return np.flatnonzero(new)


def _bits(gpus: IntArray, traffic_index: TrafficIndex) -> MaskArray:
    """A mask with one GPU each; whole numbers of Python where a machine has more than fit into 64 bits."""
    if int(traffic_index.fabric.gpus_of_node.max(initial=0)) <= MOST_GPUS_IN_INT64:
        return np.left_shift(np.int64(1), gpus)
    masks: NDArray[np.object_] = np.array([1 << gpu for gpu in gpus.tolist()], dtype=object)
    return masks


def read_islands(traffic_index: TrafficIndex, slots: Slots, sharing: IntArray) -> Islands:
    """Look up what the GPUs of each slot are to each other and to the network, and join slots to islands."""
    first = slots.first_of_island
    group = slots.group[first]
    spans = np.diff(np.append(first, len(slots.node))) > 1
    lost = group[1:] != group[:-1]
    first_of_group = np.flatnonzero(np.append(True, lost))
    islands_of_group = np.diff(np.append(first_of_group, len(group)))
    sends = np.repeat(np.repeat(islands_of_group > 1, islands_of_group), _lengths(first, slots))
    table = _SlotFigures.of(traffic_index, slots, _busy(slots, sharing, sends))
    in_wide = np.repeat(spans, _lengths(first, slots))
    least = np.minimum.reduceat
    out = np.add.reduceat(table.out_GBps * traffic_index.residual_of_node[slots.node], first)
    ring = np.where(in_wide, table.port_GBps, table.ring_GBps)
    narrowest, tightest = least_of_runs(ring, first)
    return Islands(
        group=group,
        node=slots.node[first],
        gpus=np.add.reduceat(slots.gpus, first),
        spans_nodes=spans,
        ring_GBps=narrowest,
        exchange_GBps=least(np.where(in_wide, table.port_GBps, table.exchange_GBps), first),
        limit=np.where(in_wide, table.port_link, table.limit)[tightest],
        nvlink=np.logical_and.reduceat(table.nvlink | in_wide, first),
        port_GBps=least(table.port_GBps, first),
        in_switch_share=least(table.in_switch_share, first),
        generation=least(table.generation, first),
        out_GBps=out,
        first_of_group=first_of_group,
        of_group=islands_of_group,
    )


def _lengths(first: IntArray, slots: Slots) -> IntArray:
    return np.diff(np.append(first, len(slots.node)))


def _busy(slots: Slots, sharing: IntArray, sends: BoolArray) -> MaskArray:
    """For each slot the GPUs of its node that send out at the same time: its own and those of groups beside it."""
    if np.array_equal(sharing, each_alone(len(sharing))):
        return slots.mask
    _, which = number_equal_rows(sharing[slots.group], slots.node)
    busy: MaskArray = np.zeros_like(slots.mask)
    np.bitwise_or.at(busy, which[sends], slots.mask[sends])
    joined: MaskArray = np.bitwise_or(busy[which], slots.mask)
    return joined


@dataclass(frozen=True, slots=True)
class _SlotFigures:
    """Figures of each slot, computed once for equal slots."""

    ring_GBps: FloatArray
    exchange_GBps: FloatArray
    limit: IntArray
    nvlink: BoolArray
    port_GBps: FloatArray
    port_link: IntArray
    in_switch_share: FloatArray
    generation: IntArray
    out_GBps: FloatArray

    @classmethod
    def of(cls, traffic_index: TrafficIndex, slots: Slots, busy: MaskArray) -> "_SlotFigures":
        kind = traffic_index.kind_of_node[slots.node]
        keys = (kind, slots.mask) if busy is slots.mask else (kind, slots.mask, busy)
        first, which = number_equal_rows(*keys)
        rows = [
            figures_of(traffic_index, int(kind[slot]), int(slots.mask[slot]), int(busy[slot]))
            for slot in first.tolist()
        ]
        columns = [np.array(column)[which] for column in zip(*rows, strict=True)]
        return cls(*columns)


def figures_of(traffic_index: TrafficIndex, kind: int, mask: int, busy: int) -> tuple[float, ...]:
    """All that GPUs on a node of a kind are to prices, while those of busy send out of it: a row of `_SlotFigures`."""
    inside, traits = traffic_index.inside(kind, mask), traffic_index.traits_of_kind(kind)
    return (
        inside.ring_GBps,
        inside.exchange_GBps,
        traffic_index.code(inside.weakest),
        inside.nvlink,
        traffic_index.hosts[kind].port_GBps_of(gpus_of(mask)),
        traffic_index.code(traffic_index.hosts[kind].port_link),
        traits.in_switch_share,
        int(traits.generation),
        traffic_index.out_GBps(kind, mask, busy),
    )


def read_paths(
    traffic_index: TrafficIndex, nodes: IntArray, gpus: IntArray, sharing: IntArray
) -> Paths:
    """Follow the rings of groups through the fabric."""
    islands = read_islands(traffic_index, read_slots(traffic_index, nodes, gpus), sharing)
    out, limit, hop_us = _leaving(traffic_index, islands, sharing)
    first = islands.first_of_group
    ring, ring_limit = _least_of_group(islands.ring_GBps, islands.limit, islands)
    out_of_group, out_limit = _least_of_group(out, limit, islands)
    return Paths(
        ranks=nodes.shape[1],
        islands=islands.of_group,
        most_gpus=np.maximum.reduceat(islands.gpus, first),
        ring_GBps=ring,
        ring_limit=ring_limit,
        nvlink=np.logical_and.reduceat(islands.nvlink, first),
        in_switch_GBps=_in_switch(islands),
        out_GBps=out_of_group,
        out_limit=out_limit,
        hop_us=np.add.reduceat(hop_us, first) / islands.of_group,
        longest_us=np.maximum.reduceat(hop_us, first),
        generation=np.minimum.reduceat(islands.generation, first),
    )


def _least_of_group(
    GBps: FloatArray, limit: IntArray, islands: Islands
) -> tuple[FloatArray, IntArray]:
    """The least rate of each group, and the code of what first bounds it."""
    least, tightest = least_of_runs(GBps, islands.first_of_group)
    return least, limit[tightest]


def _in_switch(islands: Islands) -> FloatArray:
    """Bytes of the message over time where switches add: each GPU sends it once, and its share of the sum."""
    alone = (islands.gpus == 1) & np.repeat(islands.of_group > 1, islands.of_group)
    usable = islands.nvlink & (islands.port_GBps > 0) & ~alone
    rate = islands.in_switch_share * islands.port_GBps / (1 + 1 / islands.gpus)
    return np.minimum.reduceat(np.where(usable, rate, 0.0), islands.first_of_group)


def _leaving(
    traffic_index: TrafficIndex, islands: Islands, sharing: IntArray
) -> tuple[FloatArray, IntArray, FloatArray]:
    """(GB/s out of each island on its ring's hops, the code of what bounds it, us of the hop to the next)."""
    following = islands.next_in_ring
    before = np.empty_like(following)
    before[following] = np.arange(len(following))
    out = np.full(len(following), inf)
    limit = np.zeros(len(following), dtype=np.int64)
    hop_us = np.zeros(len(following))
    many = np.repeat(islands.of_group > 1, islands.of_group)
    nics = np.where(
        islands.spans_nodes,
        np.minimum(islands.out_GBps, NVLINK_DOMAIN_EGRESS_GBps),
        islands.out_GBps,
    )
    _tighten(out, limit, np.where(many, nics, inf), traffic_index.code(NIC))
    for number in range(traffic_index.island_tier, 0, -1):
        tier = traffic_index.tiers[number]
        domain = traffic_index.fabric.domain_of_node[number][islands.node]
        leaves = domain != domain[following]
        if not leaves.any():
            break
        hop_us[leaves] = np.maximum(hop_us[leaves], tier.latency_us)
        code = traffic_index.code(traffic_index.fabric.tiers[number])
        if not tier.plain or not np.isnan(tier.GPU_GBps):
            crosses = leaves | leaves[before]
            own = _own_share(traffic_index, number, islands.gpus, nics) * tier.residual[domain]
            _tighten(out, limit, np.where(crosses, own, inf), code)
        if not tier.plain:
            shares = _uplink_shares(traffic_index, number, domain, leaves, sharing[islands.group])
            _tighten(out, limit, shares, code)
    return out, limit, hop_us


def _own_share(
    traffic_index: TrafficIndex, number: int, gpus: IntArray, nics: FloatArray
) -> FloatArray:
    """What an island has for crossing a tier that is whole: the site's figure per GPU, else its NICs."""
    told = traffic_index.tiers[number].GPU_GBps
    if not np.isnan(told):
        return np.multiply(gpus, told, dtype=np.float64)
    return np.full(len(nics), inf) if number == traffic_index.fabric.node_tier else nics


def _tighten(out: FloatArray, limit: IntArray, rate: FloatArray, code: int) -> None:
    tighter = rate < out
    limit[tighter] = code
    np.minimum(out, rate, out=out)


def _uplink_shares(
    traffic_index: TrafficIndex, number: int, domain: IntArray, leaves: BoolArray, sharing: IntArray
) -> FloatArray:
    """What each island's ring has of its domain's up-links: they are split evenly among the hops that leave."""
    tier = traffic_index.tiers[number]
    capacity = tier.uplink_GBps[domain] * tier.residual[domain]
    _, which = number_equal_rows(sharing, domain)
    hops = np.bincount(which, weights=leaves)[which].astype(np.float64)
    return np.where(leaves, capacity / np.maximum(hops, 1), inf)


def rings(
    traffic_index: TrafficIndex, groups: Sequence[Sequence[tuple[int, int]]]
) -> tuple[IntArray, IntArray]:
    """(nodes, gpus) as arrays [group, rank] of groups of (node, GPU) that are all of one size."""
    table = np.array(groups, dtype=np.int64).reshape(len(groups), -1, 2)
    assert (table[:, :, 0] < len(traffic_index.fabric.nodes)).all(), (
        "a node that the fabric does not have"
    )
    return table[:, :, 0], table[:, :, 1]
