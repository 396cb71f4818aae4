"""How long collectives take on given paths: NCCL's algorithms as formulas over arrays. Paths are read in `paths`.

All is by group. Sizes and bus bandwidths are as nccl-tests define them: the size is that of the larger buffer of a rank
(for an all-gather the gathered whole, for a reduce-scatter what is scattered, for an all-to-all all that a rank
sends), and busbw = FACTOR x size / time.

One form serves every algorithm, machine and size:

    time = LAUNCH + latency + transfer + FILL x sqrt(latency x transfer)

- *ring*: an all-reduce is 2(n-1) steps, of which 2(islands-1) go over the network; an all-gather or reduce-scatter
  half of that; a broadcast or reduce n-1. Latency is NCCL's base plus its figure for each step; transfer is the
  FACTOR of the size at the slowest hop's rate. LL, LL128 and Simple are each priced, with their shares of the rate.
- *tree* (all-reduce): up and down a chain inside the island and a binary tree over islands: few steps, half the rate.
- *in-switch* (all-reduce; NVLS): the switches add. Each GPU sends the message once and its share of the sum, so n GPUs
  reach in_switch_share x port / (1 + 1/n), which is faster than a ring for 5 GPUs or more on Hopper and 6 on Blackwell:
  where NCCL is seen to begin using it. Across islands a double binary tree joins the sums (NVLS-tree): with two islands
  the message leaves each once, with more twice, for an inner node has two children.
- *collnet* (all-reduce; SHARP: the network's switches add) is priced only when named. That a fabric can do it is seen
  in no topology; NCCL has it off by default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import COLLECTIVES
from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray
from gantree.topology.hardware.constants import (
    BASE_RING_US,
    BASE_TREE_US,
    COLLNET_GPU_US,
    COLLNET_SHARE,
    COLLNET_US,
    FILL,
    IN_SWITCH_GPUS,
    IN_SWITCH_TREE_US,
    IN_SWITCH_US,
    LAUNCH_US,
    LL,
    LL128,
    NET_OVERHEAD_US,
    NET_RING_MORE_US,
    NET_TREE_MORE_US,
    NET_US,
    NVLINK_RING_US,
    NVLINK_TREE_US,
    PCI_RING_US,
    PCI_TREE_US,
    RING_LL128_SHARE,
    RING_LL_SHARE,
    SIMPLE,
    TREE_LL128_SHARE,
    TREE_LL128_SHARE_ONE_NODE,
    TREE_LL_SHARE,
    TREE_SIMPLE_SHARE,
    Generation,
    LL_MOST_GBps,
)
from gantree.topology.traffic.paths import Paths

ADMITTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "all_reduce": ("ring", "tree", "in-switch", "collnet"),
        "all_gather": ("ring",),
        "reduce_scatter": ("ring",),
        "broadcast": ("ring",),
        "reduce": ("ring",),
        "all_to_all": ("pairwise",),
        "send_recv": ("pairwise",),
    }
)
"""The algorithms of each collective. Between those of an all-reduce the fastest is taken, collnet set aside."""


PROTOCOLS = (LL, LL128, SIMPLE)
"""NCCL's protocols: the rows of arrays [protocol, group]."""

_BASE_RING_US, _BASE_TREE_US = np.array(BASE_RING_US), np.array(BASE_TREE_US)
_NVLINK_RING_US, _NVLINK_TREE_US = np.array(NVLINK_RING_US), np.array(NVLINK_TREE_US)
_PCI_RING_US, _PCI_TREE_US = np.array(PCI_RING_US), np.array(PCI_TREE_US)
_NET_OVERHEAD_US = np.array(NET_OVERHEAD_US)
_NET_RING_MORE_US, _NET_TREE_MORE_US = np.array(NET_RING_MORE_US), np.array(NET_TREE_MORE_US)
_LL_MOST_GBPS = np.array(LL_MOST_GBps)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One algorithm's price; arrays are by group. us is inf if it cannot run; limit is a code of `TrafficIndex.words`.

    by_latency tells whether latency is most of it.
    """

    us: FloatArray
    limit: IntArray
    by_latency: BoolArray


def busbw_factor(collective: str, ranks: int) -> float:
    """What nccl-tests multiply size / time with: the part of the size that crosses each rank's links."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in {"all_gather", "reduce_scatter", "all_to_all"}:
        return (ranks - 1) / ranks
    return 1.0


def check(collective: str, algorithm: str | None, size_bytes: float) -> None:
    """Raise BadInput for a collective that is none, an algorithm that it does not have, a size below 0."""
    if collective not in COLLECTIVES:
        raise BadInput(f"no collective {collective!r}; known: {', '.join(COLLECTIVES)}")
    if algorithm is not None and algorithm not in ADMITTED[collective]:
        known = ", ".join(ADMITTED[collective])
        raise BadInput(f"no algorithm {algorithm!r} for {collective}; known: {known}")
    if not 0 <= size_bytes <= 1e18:
        raise BadInput(f"{size_bytes:g} bytes; allowed: from 0 to 1e18")


def estimate(paths: Paths, collective: str, algorithm: str, size_bytes: float) -> Estimate:
    """Price one algorithm of a collective other than all_to_all and send_recv."""
    if algorithm == "ring":
        return _ring(paths, collective, size_bytes)
    if algorithm == "tree":
        return _tree(paths, size_bytes)
    return (
        _in_switch(paths, size_bytes) if algorithm == "in-switch" else _collnet(paths, size_bytes)
    )


def of_form(latency_us: FloatArray, transfer_us: FloatArray) -> FloatArray:
    """Join latency and transfer to microseconds: the one form of all prices."""
    return LAUNCH_US + latency_us + transfer_us + FILL * np.sqrt(latency_us * transfer_us)


def best(estimates: list[Estimate]) -> tuple[Estimate, IntArray]:
    """The fastest of several, group by group, and its number in the list."""
    number = np.argmin([each.us for each in estimates], axis=0)
    groups = np.arange(len(number))
    picked = [
        np.array([getattr(each, name) for each in estimates])[number, groups]
        for name in ("us", "limit", "by_latency")
    ]
    return Estimate(*picked), number


def _transfer_us(size_bytes: float | FloatArray, GBps: FloatArray) -> FloatArray:
    """Microseconds; GBps is 0 where it cannot run, inf where nothing is sent."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(GBps > 0, np.asarray(size_bytes) / (GBps * 1e3), np.inf)


def _of(latency_us: FloatArray, transfer_us: FloatArray, limit: IntArray) -> Estimate:
    with np.errstate(invalid="ignore"):
        us = np.where(np.isinf(transfer_us), np.inf, of_form(latency_us, transfer_us))
    return Estimate(us, limit, LAUNCH_US + latency_us > transfer_us)


def _step_us(paths: Paths, nvlink: FloatArray, pci: FloatArray) -> FloatArray:
    """One step inside an island [protocol, group], of figures by protocol."""
    inside = np.where(paths.nvlink, nvlink[:, None], pci[:, None])
    return np.where(paths.islands > 1, np.maximum(inside, _NET_OVERHEAD_US[:, None]), inside)


def _narrowest(paths: Paths) -> tuple[FloatArray, IntArray]:
    """The slower of a ring's hops inside and outside, and what bounds it."""
    outside = paths.out_GBps < paths.ring_GBps
    return (
        np.minimum(paths.ring_GBps, paths.out_GBps),
        np.where(outside, paths.out_limit, paths.ring_limit),
    )


def _ll_most(paths: Paths) -> FloatArray:
    return np.asarray(_LL_MOST_GBPS[paths.generation, np.clip(_nodes_class(paths), 0, 2)])


def _nodes_class(paths: Paths) -> IntArray:
    """0 for one island, 1 for two, 2 for more."""
    return np.minimum(paths.islands, 3) - 1


def _ring(paths: Paths, collective: str, size_bytes: float) -> Estimate:
    GBps, limit = _narrowest(paths)
    rounds = 2 if collective == "all_reduce" else 1
    outside_steps = rounds * (paths.islands - 1)
    inside_steps = rounds * (paths.ranks - 1) - outside_steps
    size = size_bytes * busbw_factor(collective, paths.ranks)
    rates = _rates(paths, GBps, RING_LL_SHARE, np.full(len(GBps), RING_LL128_SHARE), 1.0)
    latency = (
        _BASE_RING_US[:, None]
        + inside_steps * _step_us(paths, _NVLINK_RING_US, _PCI_RING_US)
        + outside_steps * (paths.hop_us + _NET_RING_MORE_US[:, None])
    )
    return _fastest(latency, _transfer_us(size, rates), limit)


def _tree(paths: Paths, size_bytes: float) -> Estimate:
    GBps, limit = _narrowest(paths)
    one = paths.islands == 1
    ll128 = np.where(one, TREE_LL128_SHARE_ONE_NODE, TREE_LL128_SHARE)
    rates = _rates(paths, GBps, TREE_LL_SHARE, ll128, TREE_SIMPLE_SHARE)
    latency = _BASE_TREE_US[:, None] + 2 * (
        (paths.most_gpus - 1) * _step_us(paths, _NVLINK_TREE_US, _PCI_TREE_US)
        + np.log2(paths.islands) * (paths.longest_us + _NET_TREE_MORE_US[:, None])
    )
    return _fastest(latency, _transfer_us(size_bytes, rates / 2), limit)


def _rates(
    paths: Paths, GBps: FloatArray, ll_share: float, ll128_share: FloatArray, simple_share: float
) -> FloatArray:
    """What each protocol makes of a rate: GBps[protocol, group], 0 where it cannot run."""
    rates = np.empty((len(PROTOCOLS), len(GBps)))
    rates[LL] = np.minimum(_ll_most(paths), ll_share * GBps)
    rates[LL128] = np.where(paths.nvlink, ll128_share * GBps, 0.0)
    rates[SIMPLE] = simple_share * GBps
    return rates


def _fastest(latency_us: FloatArray, transfer_us: FloatArray, limit: IntArray) -> Estimate:
    """The fastest protocol of each group, from arrays [protocol, group]."""
    every = _of(latency_us, transfer_us, limit)
    if every.us.shape[1] == 1:
        protocol = int(every.us.argmin())
        return Estimate(every.us[protocol], limit, every.by_latency[protocol])
    protocol = every.us.argmin(axis=0)
    groups = np.arange(len(limit))
    return Estimate(every.us[protocol, groups], limit, every.by_latency[protocol, groups])


def _in_switch(paths: Paths, size_bytes: float) -> Estimate:
    copies = np.where(paths.islands > 2, 2, 1)
    outside = paths.out_GBps / copies
    rate = np.minimum(paths.in_switch_GBps, outside)
    hop_us = IN_SWITCH_TREE_US + np.maximum(paths.longest_us - NET_US, 0.0)
    latency = IN_SWITCH_US * np.maximum(paths.most_gpus / IN_SWITCH_GPUS, 1) + np.where(
        paths.islands > 1, 2 * np.log2(paths.islands) * hop_us, 0.0
    )
    limit = np.where(outside < paths.in_switch_GBps, paths.out_limit, paths.ring_limit)
    return _of(latency, _transfer_us(size_bytes, rate), limit)


def _collnet(paths: Paths, size_bytes: float) -> Estimate:
    GBps, limit = _narrowest(paths)
    share = np.where(paths.generation >= Generation.HOPPER, COLLNET_SHARE, 1.0)
    rate = np.where(paths.islands > 1, share * GBps / 2, 0.0)
    step_us = _step_us(paths, _NVLINK_RING_US, _PCI_RING_US)[SIMPLE]
    latency = (
        2 * (np.minimum(paths.most_gpus - 1, 1) * step_us + (paths.most_gpus - 1) * COLLNET_GPU_US)
        + COLLNET_US
        + np.maximum(paths.longest_us - NET_US, 0.0)
    )
    return _of(latency, _transfer_us(size_bytes, rate), limit)
