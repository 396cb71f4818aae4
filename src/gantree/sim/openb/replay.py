"""The experiment: pods arrive one by one, are placed or dropped, and never leave; what is allocated on the way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from gantree.model.errors import NotFound
from gantree.sim.openb.fgd import Fgd
from gantree.sim.openb.least_loss import LeastLossOfPods
from gantree.sim.openb.lists import Nodes, Workload
from gantree.sim.openb.policies import BestFit, Builder, RandomFit
from gantree.sim.openb.room import Room
from gantree.text.words import did_you_mean
from gantree.topology.fabric.fabric import IntArray

POLICIES: Mapping[str, Builder] = {
    "Random": RandomFit,
    "BestFit": BestFit,
    "FGD": Fgd,
    "gantree": LeastLossOfPods,
}

MARKS_PERCENT = (90, 100, 110, 120, 130)
"""Arrived demand, in percent of the cluster's GPUs, at which the allocation is read."""

NEARLY_PERCENT = 0.5
"""How little an order may fall short of a mark for its end to count as the mark; orders end just before 130."""


@dataclass(slots=True)
class Counts:
    """Milli GPUs in all, and those of pods of two or more GPUs, that have arrived and have been placed."""

    arrived: int = 0
    placed: int = 0
    arrived_several: int = 0
    placed_several: int = 0

    def add(self, milli: int, several: bool, placed: bool) -> None:
        """Count one pod."""
        self.arrived += milli
        self.placed += milli * placed
        self.arrived_several += milli * several
        self.placed_several += milli * (several and placed)


@dataclass(slots=True)
class Replay:
    """What came out. Percentages by mark, None where the order does not reach it; dropped pods with the demand
    arrived until the first of them that asked for a GPU, None if there is none."""

    policy: str
    seed: int
    pods: int
    seconds: float = 0.0
    dropped: int = 0
    all_placed_until_percent: float | None = None
    allocated_percent: dict[int, float | None] = field(default_factory=dict)
    multi_gpu_percent: dict[int, float | None] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "allocated_percent": _by_mark(self.allocated_percent),
            "multi_gpu_percent": _by_mark(self.multi_gpu_percent),
            "pods": self.pods,
            "dropped": self.dropped,
            "all_placed_until_percent": _rounded(self.all_placed_until_percent),
            "seconds": round(self.seconds, 2),
        }


def _by_mark(percent_at: Mapping[int, float | None]) -> dict[str, float | None]:
    return {str(mark): _rounded(percent) for mark, percent in percent_at.items()}


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, 4)


def policy_named(name: str) -> str:
    """The policy's own spelling of a name. Raises NotFound."""
    for known in POLICIES:
        if known.lower() == name.lower():
            return known
    raise NotFound(
        f"no policy {name}; there are {', '.join(POLICIES)}.{did_you_mean(name, POLICIES)}"
    )


def replay(
    nodes: Nodes,
    workload: Workload,
    rank: IntArray,
    seed: int,
    policy: str,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Replay:
    """Fill the cluster once. rank[node] breaks ties; seed is that of the order, and of the policy Random.

    advance(pods arrived, pods) is called as it goes on.
    """
    start_s = perf_counter()
    room = Room(nodes)
    chooser = POLICIES[policy](room, workload, rank, seed)
    outcome, counts = Replay(policy, seed, len(workload.arrivals)), Counts()
    capacity, marks = nodes.gpu_milli, list(MARKS_PERCENT)
    for done, arrival in enumerate(workload.arrivals):
        advance(done, outcome.pods)
        shape = workload.shapes[arrival]
        fitting = np.flatnonzero(room.fits(shape))
        if len(fitting):
            choice = chooser.choose(arrival, fitting)
            room.place(choice.node, shape, choice.gpu)
            chooser.placed(choice.node)
        else:
            outcome.dropped += 1
            if shape.gpus and outcome.all_placed_until_percent is None:
                outcome.all_placed_until_percent = 100 * counts.arrived / capacity
        counts.add(shape.asked_milli, shape.gpus > 1, len(fitting) > 0)
        while marks and counts.arrived * 100 >= marks[0] * capacity:
            _read(outcome, marks.pop(0), counts, capacity)
    for mark in marks:
        reached = 100 * counts.arrived / capacity >= mark - NEARLY_PERCENT
        _read(outcome, mark, counts if reached else None, capacity)
    outcome.seconds = perf_counter() - start_s
    return outcome


def _read(outcome: Replay, mark: int, counts: Counts | None, capacity: int) -> None:
    outcome.allocated_percent[mark] = None if counts is None else 100 * counts.placed / capacity
    several = counts is not None and counts.arrived_several > 0
    outcome.multi_gpu_percent[mark] = (
        100 * counts.placed_several / counts.arrived_several if counts and several else None
    )
