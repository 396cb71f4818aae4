"""Keeps groups of ranks in few domains (`topology.near` of a job): the cost of an order of ranks, and orders to try.

A job may weigh groups by the number of domains of a tier that they span, instead of by predicted traffic: operators can
check such a spread, and it needs no knowledge of the traffic. The cost of an order is the sum, over the axes that the
job names, of weight x domains that the widest group of the axis spans. Tensor, context and expert groups that it does
not name count before these, because most traffic is along them. Among orders of equal cost the one with the lower mean
is chosen.

For two axes that cross each other, such as pipelines and their replicas, no order is best for both. The orders in
between divide the axis into *parts*:

    an axis is cut into equally long parts; the section of one group in a part is a run
    each run is whole in one domain; each part uses few domains

With replicas beside pipelines, one part is whole pipelines (each in one domain, a stage in all domains); as many parts
as stages are whole stages; two parts over four equal domains halve the spread of the stages at the price of
pipelines in two. Domains are divided among parts so that no part has many pieces: each part in turn gets the smallest
domains, neighbours by size, that hold it; so the parts that follow get the large ones. This is a heuristic; parts that
do not fit whole are split last. The cost is computed on whole orders, so a poor proposal is not chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import AXES, Job
from gantree.placement.ranks.layouts import GridLayout
from gantree.placement.request.topology_request import allowed_tiers
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.traffic.traffic import ParallelismDegrees, groups_of

INNERMOST = ("tensor", "context", "expert")
"""Axes that stay within the runs unless the job weighs them: theirs are the groups that send most."""
PART = " part"
_SAME = 1 + 1e-9

Piece = tuple[int, int]
"""(domain, runs that a part has there)."""


@dataclass(frozen=True, slots=True)
class GroupSpread:
    """The cost of orders of one gang: domains that its groups span. groups_of_weight: (weight, groups[group, rank])

    domain[position] is the domain, of the tier that the job names, of a GPU; axes are those that the job weighs.
    """

    domain: IntArray
    groups_of_weight: tuple[tuple[float, IntArray], ...]
    axes: tuple[str, ...]

    @classmethod
    def of(
        cls, fabric: Fabric, job: Job, degrees: ParallelismDegrees, domains: IntArray
    ) -> "GroupSpread | None":
        """Return None for a job that weighs no groups. domains[tier, position] has every tier below the fabric.

        For a tier inside the node, nodes are counted. Raises BadInput for a tier or an axis that is not there.
        """
        near = job.topology.near
        if near is None:
            return None
        allowed, tiers = allowed_tiers(fabric), fabric.tiers[1:]
        if near.tier not in allowed:
            raise BadInput(
                f"job {job.name}: topology.near.tier: no tier {near.tier!r}; allowed: {', '.join(allowed)}"
            )
        unknown = [axis for axis, _ in near.weights if axis not in AXES]
        if unknown:
            raise BadInput(
                f"job {job.name}: topology.near: no axis {unknown[0]!r}; allowed: {', '.join(AXES)}"
            )
        domain = domains[tiers.index(near.tier) if near.tier in tiers else -1]
        weight_of_axis = dict(near.weights)
        before_all = 1 + sum(weight_of_axis.values()) * len(np.unique(domain))
        weights = dict.fromkeys(INNERMOST, before_all) | weight_of_axis
        groups = whole_groups(degrees)
        told = [(weight, groups[axis]) for axis, weight in weights.items() if axis in groups]
        axes = tuple(axis for axis in weight_of_axis if axis in groups)
        return cls(domain, tuple(told), axes)

    def least(self, orders: IntArray) -> IntArray:
        """Return the indices of the orders of least cost; of these, those with the least sum of means.

        orders[order, rank] are gang_gpus.
        """
        widest, mean = np.zeros(len(orders)), np.zeros(len(orders))
        for weight, groups in self.groups_of_weight:
            reached = self._domains(orders, groups)
            widest += weight * reached.max(axis=1)
            mean += weight * reached.mean(axis=1)
        mean[widest > widest.min() * _SAME] = np.inf
        return np.flatnonzero(mean <= mean.min() * _SAME).astype(np.int64)

    def _domains(self, orders: IntArray, groups: IntArray) -> IntArray:
        """Return the number of domains that each group spans, [order, group]."""
        reached = np.sort(self.domain[orders[:, groups]], axis=2)
        domains: IntArray = (np.diff(reached, axis=2) != 0).sum(axis=2) + 1
        return domains

    def proposals(
        self,
        grid: Mapping[str, int],
        near_first: Sequence[str],
        first_rank: IntArray,
        places: IntArray,
    ) -> Iterator[IntArray]:
        """place_of_unit[unit] for each axis that the job weighs, cut into each number of parts that divides it.

        grid holds the ranks along each axis, the slowest axis first; units are runs of ranks that begin with
        first_rank; places are the first positions of each place, in topology order.
        """
        domain = self.domain[places]
        for axis in self.axes:
            for parts in (p for p in range(1, grid[axis] + 1) if grid[axis] % p == 0):
                partition = RankPartition.of(grid, near_first, axis, parts, first_rank)
                if partition is not None:
                    yield partition.placed_over(domain)


def whole_groups(degrees: ParallelismDegrees) -> dict[str, IntArray]:
    """Groups of each axis of two or more ways, [group, rank]: as `groups_of`, but all stages of a pipeline are one."""
    groups = dict(groups_of(degrees))
    if "pipeline" in groups:
        grid = degrees.grid
        ranks = np.arange(int(np.prod(tuple(grid.values()))), dtype=np.int64)
        stages = np.moveaxis(ranks.reshape(*grid.values()), list(grid).index("pipeline"), -1)
        groups["pipeline"] = stages.reshape(-1, degrees.pipeline)
    return groups


@dataclass(frozen=True, slots=True)
class RankPartition:
    """Units of ranks in order: those of a part are together, and within it those of a run."""

    units: IntArray
    units_of_run: int
    runs_of_part: int

    @classmethod
    def of(
        cls,
        grid: Mapping[str, int],
        near_first: Sequence[str],
        axis: str,
        parts: int,
        first_rank: IntArray,
    ) -> "RankPartition | None":
        """Cut an axis into parts; None where units of several ranks do not divide the runs, nor runs them."""
        cut = {}
        for name, size in grid.items():
            if name == axis:
                cut[axis + PART] = parts
            cut[name] = size // parts if name == axis else size
        within = [name for name in near_first if name in INNERMOST and name != axis]
        others = [name for name in near_first if name not in within and name != axis]
        layout = GridLayout.of(cut, [*within, axis, *others, axis + PART], first_rank)
        ranks = int(np.prod(tuple(grid.values())))
        ranks_of_unit = ranks // len(first_rank)
        run = int(np.prod([cut[name] for name in (*within, axis)]))
        run = max(run, ranks_of_unit)
        if run % ranks_of_unit or (ranks // parts) % run:
            return None
        units = np.argsort(layout.key, kind="stable").astype(np.int64)
        return cls(units, run // ranks_of_unit, ranks // parts // run)

    def placed_over(self, domain: IntArray) -> IntArray:
        """place_of_unit[unit] over places in these domains; the places of a domain are neighbours."""
        runs = self.units.reshape(-1, self.units_of_run)
        bounds = [0, *(np.flatnonzero(np.diff(domain)) + 1).tolist(), len(domain)]
        rooms = [(end - begin) // self.units_of_run for begin, end in pairwise(bounds)]
        broken = len(runs) - sum(rooms)
        shares = few_pieces([*rooms, broken], self.runs_of_part, len(runs) // self.runs_of_part)
        at = [*bounds[:-1], 0]
        rest: list[int] = []
        place_of_unit = np.full(len(self.units), -1, dtype=np.int64)
        run = 0
        for pieces in shares:
            for number, count in pieces:
                units = runs[run : run + count].ravel()
                run += count
                if number == len(rooms):
                    rest += units.tolist()
                else:
                    place_of_unit[units] = np.arange(at[number], at[number] + len(units))
                    at[number] += len(units)
        left = np.setdiff1d(np.arange(len(domain)), place_of_unit)
        place_of_unit[rest] = left
        return place_of_unit


def few_pieces(rooms: Sequence[int], need: int, parts: int) -> list[list[Piece]]:
    """Divide domains among parts that need so much each, all there is, in few pieces for the part that has most."""
    assert sum(rooms) == need * parts, f"{rooms} are not {parts} x {need}"
    for most in range(1, len(rooms) + 1):
        shares = _in_pieces(rooms, need, parts, most)
        if shares is not None:
            return shares
    raise AssertionError("one part after the other over all domains is always possible")


def _in_pieces(rooms: Sequence[int], need: int, parts: int, most: int) -> list[list[Piece]] | None:
    """The same with at most so many pieces for each part; None if this finds no division."""
    left = {number: room for number, room in enumerate(rooms) if room}
    shares = []
    for _ in range(parts):
        by_size = sorted(left, key=lambda number: (left[number], number))
        windows = (by_size[start : start + most] for start in range(len(by_size)))
        chosen = next((w for w in windows if sum(left[n] for n in w) >= need), None)
        if chosen is None:
            return None
        pieces, open_runs = [], need
        for number in chosen:
            taken = min(left[number], open_runs)
            if taken:
                pieces.append((number, taken))
                open_runs -= taken
                left[number] -= taken
            if not left[number]:
                del left[number]
        shares.append(pieces)
    return shares
