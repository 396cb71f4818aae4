"""A lower bound on the step time of a gang on placements of one case, its ranks in topology order.

A step is computing plus the exposed part of its flows (`topology.cost.step`). A flow takes as long as its slowest
group, so a bound on one group is a bound on the flow. Three bounds hold for a group, wherever the gang is placed:

- The fewest islands that it spans. Ranks of an island are consecutive, and no island holds more than the largest one,
  so windows of that size, from the group's first rank on, count islands. Domains of each tier are counted likewise.
- The rate of the slowest group, where every group has ranks in every member: at most an even part of what the tightest
  island sends. CP-SAT shows which rates no placement exceeds.
- The rate at which it leaves its islands: one of k islands has at most a k-th of its ranks, and each of these sends at
  most what a GPU of the best node sends. All groups of an axis run at once; where all of them leave their islands, all
  GPUs of the gang on a node share its NICs.

The formulas of `topology.cost.collectives` price the group with these figures. Ranks of several roles are not in one
topology order; such gangs are assumed to fit as few islands as their GPUs do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import inf, isnan

import numpy as np

from gantree.model.jobs import Job
from gantree.placement.optimum.all_reduce_search import FASTEST_GBps, kinds_of_gpus
from gantree.placement.optimum.model import Case, hop_us
from gantree.placement.optimum.options import Option, Options
from gantree.topology.cost import collectives
from gantree.topology.cost.step import Hiding, compute_of, joined
from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray
from gantree.topology.hardware.constants import (
    BASE_RING_US,
    NET_RING_MORE_US,
    NVLINK_RING_US,
    SIMPLE,
)
from gantree.topology.hardware.masks import gpus_of, mask_of
from gantree.topology.traffic.paths import Paths
from gantree.topology.traffic.traffic import Flow, degrees_of, flows_of, groups_of


@dataclass(frozen=True, slots=True)
class BestRates:
    """The highest rates of any node of the fabric, in GB/s.

    ring_GBps and in_switch_GBps are those of a number of GPUs of a group, out_GBps_beside that of each GPU while all
    GPUs of the gang on its node send, out_GBps_alone that of one GPU that sends alone.
    """

    ring_GBps: float
    in_switch_GBps: float
    out_GBps_beside: float
    out_GBps_alone: float


class StepBound:
    """Lower bounds on the step of one job that declares its model or its traffic."""

    def __init__(self, options: Options, job: Job) -> None:
        self._options, self._job = options, job
        self._traffic_index = options.traffic_index
        self._ways = degrees_of(job, options.gpus)
        self._groups = groups_of(self._ways)
        self._flows = [f for f in flows_of(job, self._ways) if f.axis in self._groups]
        self._compute_s = min(self._computing())
        fabric = options.problem.fabric
        self._most_in_tier = [self._most_gpus(tier) for tier in range(fabric.node_tier + 1)]
        self._in_order = len(options.problem.members) == 1
        self._gpus_of_member = np.array([role.shape.gpus for role, *_ in job.each_member()])

    def least_s(self, case: Case, out_GBps: float = inf) -> float:
        """Return a lower bound, in seconds, on steps of this case whose tightest island sends at most out_GBps."""
        hiding = Hiding(self._job, self._compute_s)
        least = [(flow, flow.calls * self._least_s(flow, case, out_GBps)) for flow in self._flows]
        exposed = [(flow.axis, hiding.exposed_s(flow.axis, seconds)) for flow, seconds in least]
        return joined(self._job, self._ways, self._compute_s, exposed)[0]

    def _computing(self) -> Iterator[float]:
        """Seconds of arithmetic on each machine model that the gang could get."""
        fabric, node_of_machine = self._options.problem.fabric, dict[int, int]()
        for node, of_node in self._options.of_node.items():
            if any(map(_has_gpus, of_node)):
                node_of_machine.setdefault(int(fabric.machine_index_of_node[node]), node)
        for node in node_of_machine.values():
            yield compute_of(fabric, self._job, [(node, 0)] * self._options.gpus)[0]

    def _most_gpus(self, tier: int) -> int:
        """GPUs that one domain of a tier could hold of this gang at most."""
        inside: dict[int, int] = {}
        domain_of_node = self._options.problem.fabric.domain_of_node[tier]
        for node, of_node in self._options.of_node.items():
            domain = int(domain_of_node[node])
            inside[domain] = inside.get(domain, 0) + max(option.gpus for option in of_node)
        return min(max(inside.values()), self._options.gpus)

    def egress_to_beat(self, case: Case, seconds: float) -> float:
        """Return the rate, in GB/s, that every island must exceed for a step of this case to take less than `seconds`.

        inf where the bound is no lower than `seconds` at any rate.
        """
        slow, fast = 0.0, FASTEST_GBps
        if self.least_s(case) >= seconds:
            return inf
        for _ in range(40):
            middle = (slow + fast) / 2
            late = self.least_s(case, middle) >= seconds
            slow, fast = (middle, fast) if late else (slow, middle)
        return slow

    def _least_s(self, flow: Flow, case: Case, out_GBps: float) -> float:
        groups, narrow = self._groups[flow.axis], self._traffic_index.island_tier
        if case.top >= narrow:
            return self._inside_s(flow, groups.shape[1])
        spanned = {
            tier: self._windows(groups, self._most_in_tier[tier])
            for tier in range(case.top + 1, narrow + 1)
        }
        everywhere = self._is_everywhere(groups)
        islands = np.maximum(spanned[narrow], np.where(everywhere, case.fewest, 1))
        slowest = int(np.argmax(islands))
        if islands[slowest] == 1:
            return self._inside_s(flow, groups.shape[1])
        crossed = {
            tier: bool((everywhere | (count > 1)).all())
            for tier, count in spanned.items()
            if everywhere[slowest] or count[slowest] > 1
        }
        if everywhere.all():
            out_GBps /= len(groups)
        else:
            out_GBps = inf
        return self._outside_s(flow, groups, islands, crossed or {narrow: False}, out_GBps)

    def _windows(self, groups: IntArray, most: int) -> IntArray:
        """Domains that each group spans at least, where one holds `most` ranks that follow each other."""
        if not self._in_order:
            return np.full(len(groups), -(-groups.shape[1] // most), dtype=np.int64)
        windows = np.ones(len(groups), dtype=np.int64)
        first = groups[:, 0].copy()
        for ranks in groups.T:
            beyond = ranks >= first + most
            windows += beyond
            first = np.where(beyond, ranks, first)
        return windows

    def _is_everywhere(self, groups: IntArray) -> BoolArray:
        """Which groups have a rank in every member, and so in every island."""
        member = np.repeat(np.arange(len(self._gpus_of_member)), self._gpus_of_member)
        with_gpus = int(np.count_nonzero(self._gpus_of_member))
        members = np.sort(member[groups], axis=1)
        reached = 1 + np.count_nonzero(np.diff(members, axis=1), axis=1)
        everywhere: BoolArray = reached == with_gpus
        return everywhere

    def _inside_s(self, flow: Flow, ranks: int) -> float:
        """A group that may lie inside an island."""
        best = self._best_of(ranks)
        if flow.collective in {"all_to_all", "send_recv"}:
            part = (ranks - 1) / ranks if flow.collective == "all_to_all" else 1.0
            transfer_us = np.array([part * flow.size_bytes / (best.ring_GBps * 1e3)])
            latency_us = np.array([BASE_RING_US[SIMPLE] + NVLINK_RING_US[SIMPLE]])
            return float(collectives.of_form(latency_us, transfer_us)[0]) * 1e-6
        one = np.ones(1, dtype=np.int64)
        return self._collective_s(flow, ranks, one, best, np.full(1, inf), np.zeros(1), 0.0)

    def _outside_s(
        self,
        flow: Flow,
        groups: IntArray,
        islands: IntArray,
        crossed: Mapping[int, bool],
        most_GBps: float,
    ) -> float:
        """A group of so many islands or more that sends at most that; crossed[tier]: whether all groups cross it."""
        ranks, most = groups.shape[1], self._most_together(groups)
        best = self._best_of(most)
        longest = hop_us(self._traffic_index, min(crossed))
        narrow = hop_us(self._traffic_index, self._traffic_index.island_tier)
        if flow.collective == "send_recv":
            rates = [self._across_GBps(tier, 1, False) for tier in crossed]
            return self._pairs_s(flow.size_bytes, min(best.out_GBps_alone, *rates), longest)
        out_of_GPU = best.out_GBps_alone if islands.min() == 1 else best.out_GBps_beside
        if flow.collective == "all_to_all":
            rates = [self._across_GBps(t, most, all_) / most for t, all_ in crossed.items()]
            rate = min(out_of_GPU, *rates)
            return self._pairs_s(flow.size_bytes * (ranks - most) / ranks, rate, longest)
        count = np.arange(int(islands.max()), ranks + 1)
        fewest = np.minimum(most, ranks // count)
        out_of_GPU = min(out_of_GPU, self._declared_GBps(self._traffic_index.island_tier))
        across = min(self._across_GBps(tier, most, all_) for tier, all_ in crossed.items())
        out = np.minimum(fewest * out_of_GPU, min(across, most_GBps))
        mean_hop_us = narrow + 2 * (longest - narrow) / count
        return self._collective_s(flow, ranks, count, best, out, mean_hop_us, longest)

    def _most_together(self, groups: IntArray) -> int:
        """Ranks of one group that one island holds at most."""
        most = self._most_in_tier[self._traffic_index.island_tier]
        if not self._in_order:
            return min(int(groups.shape[1]), most)
        inside = [np.searchsorted(g, g + most, side="left") - np.arange(len(g)) for g in groups]
        together = [int(each.max()) for each in inside]
        return max(together)

    def _across_GBps(self, number: int, most: int, all_cross: bool) -> float:
        """Return the highest rate of a group over a tier; all_cross: all groups share its up-links."""
        tier = self._traffic_index.tiers[number]
        options = (option for of_node in self._options.of_node.values() for option in of_node)
        least_gpus = min(option.gpus for option in filter(_has_gpus, options))
        groups = -(-least_gpus // most) if all_cross else 1
        uplink = float((tier.uplink_GBps * tier.residual).max())
        return min(most * self._declared_GBps(number), uplink / groups)

    def _declared_GBps(self, number: int) -> float:
        """Return the rate per GPU that the site declares for a tier, at its healthiest domain; inf without one."""
        tier = self._traffic_index.tiers[number]
        return inf if isnan(tier.GPU_GBps) else tier.GPU_GBps * float(tier.residual.max())

    def _pairs_s(self, size_bytes: float, rate_GBps: float, longest_us: float) -> float:
        """So many bytes of each GPU over the network at this rate."""
        transfer_us = np.array([size_bytes / (rate_GBps * 1e3)])
        latency_us = np.array([BASE_RING_US[SIMPLE] + longest_us + NET_RING_MORE_US[SIMPLE]])
        return float(collectives.of_form(latency_us, transfer_us)[0]) * 1e-6

    def _collective_s(
        self,
        flow: Flow,
        ranks: int,
        islands: IntArray,
        best: BestRates,
        out_GBps: FloatArray,
        mean_hop_us: FloatArray,
        longest_us: float,
    ) -> float:
        """The least over algorithms, numbers of islands, and kinds of GPUs."""
        size, fastest_us = len(islands), inf
        for nvlink, generation in sorted(kinds_of_gpus(self._options)):
            paths = Paths(
                ranks=ranks,
                islands=islands,
                most_gpus=-(-ranks // islands),
                ring_GBps=np.full(size, best.ring_GBps),
                ring_limit=np.zeros(size, dtype=np.int64),
                nvlink=np.full(size, nvlink),
                in_switch_GBps=np.full(size, best.in_switch_GBps),
                out_GBps=out_GBps,
                out_limit=np.zeros(size, dtype=np.int64),
                hop_us=mean_hop_us,
                longest_us=np.full(size, longest_us),
                generation=np.full(size, generation),
            )
            for name in collectives.ADMITTED[flow.collective]:
                if name != "collnet":
                    us = collectives.estimate(paths, flow.collective, name, flow.size_bytes).us
                    fastest_us = min(fastest_us, float(us.min()))
        return fastest_us * 1e-6

    def _best_of(self, together: int) -> BestRates:
        """Over all nodes, for so many GPUs of a group, or fewer, in an island."""
        ring = in_switch = beside = alone = 0.0
        for node in self._unlike_nodes():
            kind, free = self._kind(node), self._free(node)
            left = float(self._traffic_index.residual_of_node[node])
            ring = max(ring, self._ring_GBps(kind, free, together))
            alone = max(alone, left * self._out_of_GPU(kind, free, None))
            for option in filter(_has_gpus, self._options.of_node[node]):
                share = option.in_switch_share * max(0.0, option.port_GBps)
                in_switch = max(in_switch, share / (1 + 1 / together) if together > 1 else 0.0)
                beside = max(beside, left * self._out_of_GPU(kind, option.mask, option.mask))
        return BestRates(ring, in_switch, beside, alone)

    def _out_of_GPU(self, kind: int, gpus: int, busy: int | None) -> float:
        """Return the highest rate at which one of these GPUs sends, while those of busy send too (None: alone)."""
        return max(
            self._traffic_index.out_GBps(kind, 1 << gpu, 1 << gpu if busy is None else busy)
            for gpu in gpus_of(gpus)
        )

    def _unlike_nodes(self) -> list[int]:
        """Return one node with GPUs for each combination of machine, free GPUs and residual bandwidth."""
        first: dict[tuple[int, int, float], int] = {}
        for node, of_node in self._options.of_node.items():
            if any(map(_has_gpus, of_node)):
                left = float(self._traffic_index.residual_of_node[node])
                first.setdefault((self._kind(node), self._free(node), left), node)
        return list(first.values())

    def _kind(self, node: int) -> int:
        return int(self._traffic_index.kind_of_node[node])

    def _free(self, node: int) -> int:
        return int(self._options.problem.occupancy.free_mask_of_node[node])

    def _ring_GBps(self, kind: int, free: int, ranks: int) -> float:
        """The fastest ring over any so many GPUs of a node, or over as many as a group may have there."""
        gpus = gpus_of(free)
        best = (
            self._traffic_index.hosts[kind].port_GBps
            if self._traffic_index.islands_span_nodes
            else 0.0
        )
        for size in range(2, min(ranks, len(gpus)) + 1):
            for some in combinations(gpus, size):
                best = max(best, self._traffic_index.inside(kind, mask_of(some)).ring_GBps)
        return best or inf


def _has_gpus(option: Option) -> bool:
    return option.gpus > 0
