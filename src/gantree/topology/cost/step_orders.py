"""The step of one gang under many orders of its ranks, priced together; `step` prices one.

The GPUs stay the same, so computing does, and so do sizes and groups; what differs is which GPU runs which rank. All
orders are read at once: groups of different orders do not know of each other, those of one order run side by side.
Paths do not depend on sizes, so flows of one axis share them.
"""

from dataclasses import dataclass

import numpy as np

from gantree.model.jobs import Job
from gantree.topology.cost import collectives, pairs
from gantree.topology.cost.pricing import Pricer, Ranks
from gantree.topology.cost.step import Hiding, compute_of, joined, turn_of_group
from gantree.topology.fabric.fabric import FloatArray, IntArray
from gantree.topology.traffic.paths import Paths, read_paths
from gantree.topology.traffic.traffic import (
    Flow,
    ParallelismDegrees,
    degrees_of,
    flows_of,
    groups_of,
)
from gantree.topology.traffic.traffic_index import TrafficIndex


@dataclass(frozen=True, slots=True)
class OrderSteps:
    """Prices of orders. step_s[order]; exposed_s[order, flow] is what shows of each flow that has groups.

    spread_s[order] tells orders of equal step apart: seconds of all flows in the mean of their groups, not the slowest.
    """

    step_s: FloatArray
    exposed_s: FloatArray
    spread_s: FloatArray


class StepOfOrders:
    """A gang whose orders are priced.

    job tells its model or its traffic, ranks are (node, GPU) of each of its GPUs in any fixed order: an order names
    them by position. Raises BadInput as `step.step_time` does.
    """

    def __init__(self, pricer: Pricer, job: Job, ranks: Ranks) -> None:
        self.degrees: ParallelismDegrees = degrees_of(job, len(ranks))
        self.groups: dict[str, IntArray] = groups_of(self.degrees)
        self.flows: list[Flow] = [f for f in flows_of(job, self.degrees) if f.axis in self.groups]
        self.compute_s, _ = compute_of(pricer.traffic_index.fabric, job, ranks)
        self._traffic_index = pricer.traffic_index
        self._job = job
        self._node, self._gpu = np.array(ranks, dtype=np.int64).reshape(-1, 2).T

    def price(self, position_of_rank: IntArray) -> OrderSteps:
        """Price orders, position_of_rank[order, rank]."""
        seconds = np.zeros((len(position_of_rank), len(self.flows)))
        spread_s = np.zeros(len(position_of_rank))
        for axis in dict.fromkeys(flow.axis for flow in self.flows):
            numbers = [n for n, flow in enumerate(self.flows) if flow.axis == axis]
            flows = [self.flows[number] for number in numbers]
            slowest_s, mean_s = self._along(axis, flows, position_of_rank)
            seconds[:, numbers] = slowest_s
            spread_s += mean_s.sum(axis=1)
        exposed = np.array([self._exposed(row) for row in seconds.tolist()]).reshape(seconds.shape)
        step_s = np.array([self._step_s(row) for row in exposed.tolist()])
        return OrderSteps(step_s, exposed, spread_s)

    def _along(
        self, axis: str, flows: list[Flow], position_of_rank: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of the flows of an axis, [order, flow]: in the slowest group, and in the mean of all."""
        groups = self.groups[axis]
        slowest = np.zeros((len(position_of_rank), len(flows)))
        total = np.zeros_like(slowest)
        turns = turn_of_group(axis, len(groups), position_of_rank.shape[1])
        for turn in np.unique(turns):
            positions = position_of_rank[:, groups[turns == turn]]
            in_turn = _SideBySide(self._traffic_index, self._node[positions], self._gpu[positions])
            us = np.stack([in_turn.us(flow) for flow in flows], axis=2)
            np.maximum(slowest, us.max(axis=1), out=slowest)
            total += us.sum(axis=1)
        calls_s = np.array([flow.calls for flow in flows]) * 1e-6
        return slowest * calls_s, total / len(groups) * calls_s

    def _exposed(self, seconds: list[float]) -> list[float]:
        hiding = Hiding(self._job, self.compute_s)
        flows = zip(self.flows, seconds, strict=True)
        return [hiding.exposed_s(flow.axis, each) for flow, each in flows]

    def _step_s(self, exposed: list[float]) -> float:
        of_axis = [(flow.axis, each) for flow, each in zip(self.flows, exposed, strict=True)]
        return joined(self._job, self.degrees, self.compute_s, of_axis)[0]


class _SideBySide:
    """The groups of one axis under each order: node[order, group, rank], gpu beside it."""

    def __init__(self, traffic_index: TrafficIndex, node: IntArray, gpu: IntArray) -> None:
        self.orders, groups, ranks = node.shape
        self.traffic_index = traffic_index
        self.node, self.gpu = node.reshape(-1, ranks), gpu.reshape(-1, ranks)
        self.order_of_group: IntArray = np.repeat(np.arange(self.orders, dtype=np.int64), groups)
        self._paths: Paths | None = None

    def us(self, flow: Flow) -> FloatArray:
        """Microseconds of one call, [order, group]."""
        us: FloatArray = self._us(flow).reshape(self.orders, -1)
        return us

    def _us(self, flow: Flow) -> FloatArray:
        if flow.collective in {"all_to_all", "send_recv"}:
            of_pairs = pairs.all_to_all if flow.collective == "all_to_all" else pairs.send_recv
            return of_pairs(
                self.traffic_index, self.node, self.gpu, self.order_of_group, flow.size_bytes
            ).us
        if self._paths is None:
            self._paths = read_paths(self.traffic_index, self.node, self.gpu, self.order_of_group)
        names = [name for name in collectives.ADMITTED[flow.collective] if name != "collnet"]
        tried = [
            collectives.estimate(self._paths, flow.collective, name, flow.size_bytes)
            for name in names
        ]
        us: FloatArray = collectives.best(tried)[0].us
        return us
