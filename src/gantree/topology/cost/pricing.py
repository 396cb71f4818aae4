"""Prices of collectives on a fabric, one at a time, cached by signature, or many at once. The essay is in `cost`."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gantree.model.placements import MemberPlacement
from gantree.topology.cost import collectives, pairs
from gantree.topology.cost.collectives import Estimate, busbw_factor
from gantree.topology.fabric.calibration import Calibration
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric, FloatArray, IntArray
from gantree.topology.traffic.one_ring import OneRing, Ring
from gantree.topology.traffic.paths import Paths, each_alone, read_paths
from gantree.topology.traffic.signature import Kept, Shapes
from gantree.topology.traffic.traffic_index import LATENCY, TrafficIndex

Ranks = Sequence[tuple[int, int]]
"""(node, GPU) of each rank, in rank order, by index."""


@dataclass(frozen=True, slots=True)
class Price:
    """One collective: its time, its bus bandwidth as nccl-tests define it, how it is done, and what bounds it.

    limit is "latency", "nic", a tier of the fabric, a link class inside the machine ("NV18"), "unknown link", or "host
    memory"; "" for a single rank, which has nothing to send.
    """

    seconds: float
    busbw_GBps: float
    algorithm: str
    limit: str


NOTHING = Price(0.0, 0.0, "", "")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of many groups: arrays by group; `one` takes a single one out."""

    seconds: FloatArray
    busbw_GBps: FloatArray
    algorithm: tuple[str, ...]
    limit: tuple[str, ...]

    def one(self, group: int) -> Price:
        """The price of one group."""
        seconds, busbw = float(self.seconds[group]), float(self.busbw_GBps[group])
        return Price(seconds, busbw, self.algorithm[group], self.limit[group])


class Pricer:
    """Prices on one fabric, kept by signature."""

    def __init__(
        self,
        fabric: Fabric,
        calibration: Calibration | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        """Measured links, where given, take the place of the site's figures and of the constants.

        conditions are read once, now; None takes what the cluster file says.
        """
        self.traffic_index = TrafficIndex.of(fabric, calibration, conditions)
        self.shapes = Shapes(self.traffic_index)
        self._one_ring = OneRing.of(self.traffic_index)
        self._kept: Kept[Price] = Kept()

    def price(
        self, collective: str, size_bytes: float, ranks: Ranks, algorithm: str | None = None
    ) -> Price:
        """Price one collective over ranks in rank order. Raises BadInput for unknown words and sizes.

        algorithm names one; None takes the fastest that NCCL has switched on.
        """
        collectives.check(collective, algorithm, size_bytes)
        if len(ranks) < 2:
            return NOTHING
        key = (collective, size_bytes, algorithm, self._signature(collective, ranks))
        kept = self._kept.answers.get(key)
        if kept is None:
            kept = self.price_anew(collective, size_bytes, ranks, algorithm)
            self._kept.keep(key, kept, len(ranks))
        return kept

    def price_anew(
        self, collective: str, size_bytes: float, ranks: Ranks, algorithm: str | None = None
    ) -> Price:
        """As `price`, neither looked up nor kept: for who keeps answers of its own. Words and sizes must be right."""
        if len(ranks) < 2:
            return NOTHING
        if self._one_ring is not None and collective not in {"all_to_all", "send_recv"}:
            ring = self._one_ring.read((node, (gpu,)) for node, gpu in ranks)
            return self._price_ring(collective, size_bytes, ring, algorithm)
        table = np.array(ranks, dtype=np.int64)
        nodes, gpus = table[None, :, 0], table[None, :, 1]
        return self.price_many(collective, size_bytes, nodes, gpus, algorithm).one(0)

    def price_members(
        self, collective: str, size_bytes: float, members: Sequence[tuple[int, tuple[int, ...]]]
    ) -> Price:
        """Price a ring or tree over the GPUs of members, each (node, its GPUs) by index; not looked up by place.

        For who keeps answers of its own. Words and sizes must be right.
        """
        if self._one_ring is None or sum(len(gpus) for _, gpus in members) < 2:
            ranks = [(node, gpu) for node, gpus in members for gpu in gpus]
            return self.price_anew(collective, size_bytes, ranks)
        return self._price_ring(collective, size_bytes, self._one_ring.read(members), None)

    def _price_ring(
        self, collective: str, size_bytes: float, ring: Ring, algorithm: str | None
    ) -> Price:
        """The price of a group of which all that matters is read; different places come to the same."""
        key = (collective, size_bytes, algorithm, ring)
        kept = self._kept.answers.get(key)
        if kept is None:
            estimate, names = self._of_paths(ring.paths(), collective, size_bytes, algorithm)
            kept = self._prices(collective, size_bytes, ring.ranks, estimate, names).one(0)
            self._kept.keep(key, kept, 1)
        return kept

    def price_many(
        self,
        collective: str,
        size_bytes: float,
        nodes: IntArray,
        gpus: IntArray,
        algorithm: str | None = None,
    ) -> Prices:
        """Price one collective for many candidate places: nodes[candidate, rank], gpus[candidate, rank]."""
        return self._priced(collective, size_bytes, nodes, gpus, algorithm, each_alone(len(nodes)))

    def price_together(
        self,
        collective: str,
        size_bytes: float,
        nodes: IntArray,
        gpus: IntArray,
        algorithm: str | None = None,
        turn_of_group: IntArray | None = None,
    ) -> Prices:
        """Price groups that run the same collective side by side and share NICs and up-links: [group, rank].

        With turn_of_group, only groups of one turn run at the same time.
        """
        if turn_of_group is None:
            turn_of_group = np.zeros(len(nodes), dtype=np.int64)
        return self._priced(collective, size_bytes, nodes, gpus, algorithm, turn_of_group)

    def _priced(
        self,
        collective: str,
        size_bytes: float,
        nodes: IntArray,
        gpus: IntArray,
        algorithm: str | None,
        sharing: IntArray,
    ) -> Prices:
        collectives.check(collective, algorithm, size_bytes)
        groups, ranks = nodes.shape
        if ranks < 2 or not groups:
            nothing = np.zeros(groups)
            return Prices(nothing, nothing, ("",) * groups, ("",) * groups)
        estimate, names = self._estimate(collective, size_bytes, nodes, gpus, algorithm, sharing)
        return self._prices(collective, size_bytes, ranks, estimate, names)

    def _prices(
        self,
        collective: str,
        size_bytes: float,
        ranks: int,
        estimate: Estimate,
        names: tuple[str, ...],
    ) -> Prices:
        with np.errstate(divide="ignore", invalid="ignore"):
            busbw = busbw_factor(collective, ranks) * size_bytes / (estimate.us * 1e3)
        words = np.where(estimate.by_latency, self.traffic_index.code(LATENCY), estimate.limit)
        return Prices(
            estimate.us * 1e-6,
            busbw,
            names,
            tuple(self.traffic_index.words[word] for word in words.tolist()),
        )

    def _estimate(
        self,
        collective: str,
        size_bytes: float,
        nodes: IntArray,
        gpus: IntArray,
        algorithm: str | None,
        sharing: IntArray,
    ) -> tuple[Estimate, tuple[str, ...]]:
        """The estimate of each group and the algorithm it is of."""
        if collective in {"all_to_all", "send_recv"}:
            of_pairs = pairs.all_to_all if collective == "all_to_all" else pairs.send_recv
            estimate = of_pairs(self.traffic_index, nodes, gpus, sharing, size_bytes)
            return estimate, ("pairwise",) * len(nodes)
        paths = read_paths(self.traffic_index, nodes, gpus, sharing)
        return self._of_paths(paths, collective, size_bytes, algorithm)

    def _of_paths(
        self, paths: Paths, collective: str, size_bytes: float, algorithm: str | None
    ) -> tuple[Estimate, tuple[str, ...]]:
        tried = self._tried(paths, collective, size_bytes, algorithm)
        best, number = collectives.best(list(tried.values()))
        names = tuple(tried)
        return best, tuple(names[each] for each in number.tolist())

    def _tried(
        self, paths: Paths, collective: str, size_bytes: float, algorithm: str | None
    ) -> dict[str, Estimate]:
        """Estimates by algorithm: of the one named, which falls back to a ring where it cannot run, or of all."""
        admitted = collectives.ADMITTED[collective]
        names = [name for name in admitted if name != "collnet"]
        if algorithm is not None:
            names = [algorithm]
        tried = {n: collectives.estimate(paths, collective, n, size_bytes) for n in names}
        if algorithm is not None and np.isinf(tried[algorithm].us).any():
            ring = collectives.estimate(paths, collective, "ring", size_bytes)
            runs = np.isfinite(tried[algorithm].us)
            ring = Estimate(np.where(runs, np.inf, ring.us), ring.limit, ring.by_latency)
            tried["ring"] = ring
        return tried

    def _signature(self, collective: str, ranks: Ranks) -> Hashable:
        """What of a place its price depends on; for send/recv also which GPU sends to which."""
        mask_of_node: dict[int, int] = {}
        for node, gpu in ranks:
            mask_of_node[node] = mask_of_node.get(node, 0) | 1 << gpu
        nodes, masks = list(mask_of_node), list(mask_of_node.values())
        shape = self.shapes.shape(nodes)
        several_on_one_gpu = sum(map(int.bit_count, masks)) < len(ranks)
        if collective != "send_recv" and not several_on_one_gpu:
            return shape, self.shapes.classes(nodes, masks)
        place = {node: number for number, node in enumerate(nodes)}
        return shape, tuple([(place[node], gpu) for node, gpu in ranks])


@lru_cache(maxsize=8)
def pricer_of(fabric: Fabric) -> Pricer:
    """The pricer of a fabric without measured links; built once and kept."""
    return Pricer(fabric)


def ranks_of(fabric: Fabric, members: Sequence[MemberPlacement]) -> list[tuple[int, int]]:
    """(node, GPU) of each GPU of the members, in member order: one rank for each GPU, or for each part of one."""
    return [
        (fabric.index_of_node[member.node], gpu)
        for member in members
        for gpu in member.gpus or member.parts
    ]
