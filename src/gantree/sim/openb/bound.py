"""An upper bound on the final allocation of any policy, by linear programming.

A pod that fits may not be declined, so what arrives early has to be placed. The bound is for policies that place all of
the first 96 % of the demand, and lets them pick freely, in hindsight, from the pods that come later. Where not even
parts of pods could all be placed, the first of REQUIRED_PERCENT that can be takes the place of 96. Good policies come
near: `all_placed_until_percent` of a replay says from where on pods found no room. One that drops pods earlier might in
principle end above the bound.

What the program knows: each GPU is filled by one pattern of shares, the shares of a pattern together within the GPU; a
pod of several GPUs needs whole ones on a machine that has so many; no pod is placed on a machine smaller than itself or
of another model than it admits. What it leaves out, and so what the bound does not promise: nodes of a kind (CPU, GPUs,
model) share their CPU and GPUs as one big node, memory is no limit, and parts of pods and patterns are allowed.

Patterns are found one by one (column generation). The bound that is told is not the program's value but what its
prices prove, by weak duality, whatever they are: rounding can make it looser, not wrong.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np

from gantree.placement.scoring.share_prices import WHOLE_MILLI
from gantree.placement.scoring.simplex import FloatArray, Program
from gantree.sim.openb.lists import Nodes, Workload
from gantree.topology.fabric.fabric import IntArray

REQUIRED_PERCENT = (96, 94, 92, 90)
"""Arrived demand, in percent of the cluster's GPUs, of which every pod must have been placed; the first that can be."""

ENOUGH = 1e-7
CPUS = 10_000.0
"""CPU is counted in tens of cores, so that numbers in the program are of one order."""

INFEASIBLE = 1e-2
"""Pods that cannot be placed even in parts, above which these pods are too many for any policy."""

Class = tuple[int, int, int, tuple[str, ...]]
"""CPU milli, GPUs, milli of each GPU, models."""


@dataclass(frozen=True)
class _Kinds:
    """Nodes of equal CPU, GPUs and model, as one: cpu_milli[kind] and gpus[kind] of a node, count[kind]."""

    cpu_milli: IntArray
    gpus: IntArray
    model: tuple[str, ...]
    count: IntArray

    @classmethod
    def of(cls, nodes: Nodes) -> "_Kinds":
        rows = np.column_stack([nodes.cpu_milli, nodes.gpus, nodes.model])
        kinds, count = np.unique(rows, axis=0, return_counts=True)
        models = tuple(nodes.models[number] for number in kinds[:, 2])
        return cls(kinds[:, 0], kinds[:, 1], models, count)

    def admit(self, each: Class) -> IntArray:
        """The kinds of which an empty node holds a pod of this class."""
        cpu_milli, gpus, _, models = each
        by_model = np.array([not models or model in models for model in self.model])
        return np.flatnonzero((self.cpu_milli >= cpu_milli) & (self.gpus >= gpus) & by_model)


@dataclass(frozen=True)
class _Demand:
    """Classes with the pods of each that must be placed and that may be: required[class], optional[class]."""

    classes: tuple[Class, ...]
    required: FloatArray
    optional: FloatArray

    @classmethod
    def of(cls, nodes: Nodes, workload: Workload, required_percent: int) -> "_Demand":
        required: Counter[Class] = Counter()
        optional: Counter[Class] = Counter()
        arrived_milli, limit_milli = 0, required_percent / 100 * nodes.gpu_milli
        for arrival in workload.arrivals:
            shape = workload.shapes[arrival]
            arrived_milli += shape.asked_milli
            key = (shape.cpu_milli, shape.gpus, shape.gpu_milli, shape.models)
            (required if arrived_milli <= limit_milli else optional)[key] += 1
        classes = tuple(sorted(key for key in required | optional if key[1] or required[key]))
        wanted = ([counts[key] for key in classes] for counts in (required, optional))
        return cls(classes, *(np.array(counts, dtype=np.float64) for counts in wanted))

    @cached_property
    def gpus(self) -> FloatArray:
        """gpus[class]: GPUs that a pod is allocated, shares as parts."""
        return np.array([each[1] * each[2] / WHOLE_MILLI for each in self.classes])

    @cached_property
    def shares(self) -> IntArray:
        """The classes that ask for a part of a GPU."""
        parts = [each[1] == 1 and each[2] < WHOLE_MILLI for each in self.classes]
        return np.flatnonzero(np.array(parts, dtype=np.bool_))


class _Packing:
    """The program. Rows: GPUs of each kind, CPU of each kind, pods of each class, pods of each class that may be."""

    def __init__(self, kinds: _Kinds, demand: _Demand) -> None:
        self.kinds, self.demand = kinds, demand
        self.count, self.classes = len(kinds.count), len(demand.classes)
        self.rows = 2 * self.count + 2 * self.classes
        self.limits = np.concatenate(
            [kinds.count * kinds.gpus, kinds.count * kinds.cpu_milli / CPUS]
        )
        self.program = Program(np.concatenate([self.limits, demand.required, demand.optional]))
        self._may_hold = np.zeros((self.count, self.classes), dtype=np.bool_)
        for index, each in enumerate(demand.classes):
            self._may_hold[kinds.admit(each), index] = True
        self._add_slack()
        self._add_optional()
        self._add_whole()

    def _columns(self, count: int) -> FloatArray:
        return np.zeros((self.rows, count))

    def _add_slack(self) -> None:
        """GPUs and CPU left over; optional pods that are not placed."""
        rows = np.r_[: 2 * self.count, self.rows - self.classes : self.rows]
        columns = self._columns(len(rows))
        columns[rows, np.arange(len(rows))] = 1
        self.program.add_columns(columns, np.zeros(len(rows)))

    def _add_optional(self) -> None:
        """Pods placed beyond those required."""
        columns, each = self._columns(self.classes), np.arange(self.classes)
        columns[2 * self.count + each, each] = -1
        columns[2 * self.count + self.classes + each, each] = 1
        self.program.add_columns(columns, self.demand.gpus)

    def _add_whole(self) -> None:
        """Pods of whole GPUs, and of none, on each kind that may hold them."""
        whole = np.setdiff1d(np.arange(self.classes), self.demand.shares)
        kind, position = np.nonzero(self._may_hold[:, whole])
        index, each = whole[position], np.arange(len(kind))
        columns = self._columns(len(kind))
        columns[kind, each] = self.demand.gpus[index]
        columns[self.count + kind, each] = self._cpus[index]
        columns[2 * self.count + index, each] = 1
        self.program.add_columns(columns, np.zeros(len(kind)))

    @cached_property
    def _cpus(self) -> FloatArray:
        return np.array([each[0] / CPUS for each in self.demand.classes])

    def bound_gpus(self) -> float | None:
        """GPUs allocated at most; None if the required pods cannot all be placed."""
        while True:
            self.program.solve()
            prices = self.program.prices
            values, patterns = self._dearest_patterns(prices)
            better = values > prices[: self.count] + ENOUGH
            if not better.any():
                break
            self.program.add_columns(patterns[:, better], np.zeros(int(better.sum())))
        if self.program.unfilled > INFEASIBLE:
            return None
        return self._proved(np.maximum(prices, 0), values, self._pods_worth(prices))

    def _pods_worth(self, prices: FloatArray) -> FloatArray:
        """What placing one pod of each class is worth by these prices, before what it takes."""
        return -prices[2 * self.count : 2 * self.count + self.classes]

    def _proved(self, prices: FloatArray, values: FloatArray, worth: FloatArray) -> float:
        """The bound that any prices >= 0 for GPUs and CPU and any worth of pods prove.

        A GPU is charged enough to pay for every pattern and every whole pod; then what is allocated is at most the
        charge for all GPUs and CPU, less what the required pods are worth, plus what the optional ones add at best.
        """
        per_gpu = np.maximum(prices[: self.count], values)
        cpu_price = prices[self.count : 2 * self.count]
        paid = np.where(self._may_hold, worth - cpu_price[:, None] * self._cpus, -np.inf)
        gpus = np.array([each[1] for each in self.demand.classes])
        whole, none = np.setdiff1d(np.flatnonzero(gpus), self.demand.shares), gpus == 0
        per_gpu = np.maximum(per_gpu, (paid[:, whole] / gpus[whole]).max(axis=1, initial=0))
        worth = worth - np.where(none, np.maximum(paid.max(axis=0), 0), 0)
        demand = self.demand
        charged = np.concatenate([per_gpu, cpu_price]) @ self.limits
        added = np.maximum(demand.gpus - worth, 0) @ demand.optional
        return float(charged + (demand.gpus - worth) @ demand.required + added)

    def _dearest_patterns(self, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        """values[kind] of the pattern of shares that is worth most on a GPU of each kind, and these as columns."""
        shares = self.demand.shares
        columns = self._columns(self.count)
        columns[np.arange(self.count), np.arange(self.count)] = 1
        if len(shares) == 0:
            return np.zeros(self.count), columns
        cpu_price = np.maximum(prices[self.count : 2 * self.count], 0)
        value = self._pods_worth(prices)[shares] - cpu_price[:, None] * self._cpus[shares]
        value = np.where(self._may_hold[:, shares], value, -1.0)
        sizes = np.array([self.demand.classes[index][2] for index in shares])
        unit = gcd(WHOLE_MILLI, *sizes.tolist())
        best, last = _knapsacks(value, sizes // unit, WHOLE_MILLI // unit)
        for kind in range(self.count):
            left = WHOLE_MILLI // unit
            while left > 0:
                position = last[kind, left]
                if position >= 0:
                    columns[self.count + kind, kind] += self._cpus[shares[position]]
                    columns[2 * self.count + shares[position], kind] += 1
                left -= sizes[position] // unit if position >= 0 else 1
        return best[:, -1], columns


def _knapsacks(value: FloatArray, sizes: IntArray, capacity: int) -> tuple[FloatArray, IntArray]:
    """best[kind, room] value of any number of items in so much room, and the last item put in (-1 for none)."""
    kinds = np.arange(len(value))
    best = np.zeros((len(value), capacity + 1))
    last = np.full(best.shape, -1, dtype=np.int64)
    for room in range(1, capacity + 1):
        best[:, room] = best[:, room - 1]
        fitting = np.flatnonzero(sizes <= room)
        if len(fitting):
            together = value[:, fitting] + best[:, room - sizes[fitting]]
            item = together.argmax(axis=1)
            better = together[kinds, item] > best[:, room] + 1e-12
            best[better, room] = together[kinds, item][better]
            last[better, room] = fitting[item[better]]
    return best, last


@dataclass(frozen=True, slots=True)
class Bound:
    """At most `percent` of the cluster's GPUs is allocated by policies that place all pods of the first part."""

    percent: float
    places_first_percent: int


def bound(nodes: Nodes, workload: Workload) -> Bound | None:
    """The bound at the end of the arrivals; None if not even the first 90 % can all be placed."""
    kinds = _Kinds.of(nodes)
    for required_percent in REQUIRED_PERCENT:
        gpus = _Packing(kinds, _Demand.of(nodes, workload, required_percent)).bound_gpus()
        if gpus is not None:
            percent = min(100.0, 100 * gpus * WHOLE_MILLI / nodes.gpu_milli)
            return Bound(percent, required_percent)
    return None
