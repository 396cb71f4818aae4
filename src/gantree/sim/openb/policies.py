"""Policies that choose a node and a GPU for a pod: their protocol, and two that need no knowledge of the demand.

A policy is asked only for pods that some node has room for, and has to choose: it may not decline.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

import numpy as np

from gantree.placement.scoring.simplex import FloatArray
from gantree.sim.openb.lists import PodShape, Workload
from gantree.sim.openb.room import NO_GPU, Room
from gantree.topology.fabric.fabric import IntArray


class Choice(NamedTuple):
    """A node, and the GPU on it that gives a share (NO_GPU for other pods)."""

    node: int
    gpu: int


class Policy(Protocol):
    """Chooses among nodes that have room."""

    def choose(self, shape: int, fitting: IntArray) -> Choice:
        """A place for a pod of this shape on one of these nodes (rising, at least one)."""
        ...

    def placed(self, node: int) -> None:
        """A pod has been placed on this node."""
        ...


Builder = Callable[[Room, Workload, IntArray, int], Policy]
"""Makes a policy for an empty room, a workload (of which it may not read the arrivals), ranks and a seed."""


class RandomFit:
    """Any node with room, any GPU of it with room."""

    def __init__(self, room: Room, workload: Workload, rank: IntArray, seed: int) -> None:
        self.room, self.shapes = room, workload.shapes
        self.random = Random(seed)  # noqa: S311 - a repeatable draw, no secret

    def choose(self, shape: int, fitting: IntArray) -> Choice:
        """A place, each node with the same chance."""
        node = int(self.random.choice(fitting))
        wanted = self.shapes[shape]
        if not wanted.is_share:
            return Choice(node, NO_GPU)
        gpus = np.flatnonzero(self.room.gpu_milli[node] >= wanted.gpu_milli)
        return Choice(node, int(self.random.choice(gpus)))

    def placed(self, node: int) -> None:
        """Nothing to remember."""


class BestFit:
    """The node on which least CPU and GPU is left afterwards, half and half; on it the fullest GPU with room.

    Scores as published: 100 x (1 - 0.5 x CPU left / 128 cores - 0.5 x GPU left / 8 GPUs), whole points, then spread
    over 0..100 between the worst and the best node.
    """

    def __init__(self, room: Room, workload: Workload, rank: IntArray, seed: int) -> None:
        self.room, self.shapes, self.rank = room, workload.shapes, rank

    def choose(self, shape: int, fitting: IntArray) -> Choice:
        """The place of the best score; of equals the one of the lowest rank."""
        wanted = self.shapes[shape]
        points = np.floor(self._scores(wanted, fitting))
        span = points.max() - points.min()
        spread = np.floor((points - points.min()) * 100 / span) if span else points
        node = lowest_rank(fitting[spread == spread.max()], self.rank)
        return Choice(node, self._fullest(node, wanted) if wanted.is_share else NO_GPU)

    def _scores(self, wanted: PodShape, fitting: IntArray) -> FloatArray:
        cpu_left = self.room.cpu_milli[fitting] - wanted.cpu_milli
        gpu_left = self.room.gpu_milli[fitting].sum(axis=1) - wanted.asked_milli
        scores: FloatArray = 100 * (1 - 0.5 * cpu_left / 128_000 - 0.5 * gpu_left / 8_000)
        return scores

    def _fullest(self, node: int, wanted: PodShape) -> int:
        left = self.room.gpu_milli[node]
        return int(np.argmin(np.where(left >= wanted.gpu_milli, left, 2 * left.max())))

    def placed(self, node: int) -> None:
        """Nothing to remember."""


def lowest_rank(nodes: IntArray, rank: IntArray) -> int:
    """Of nodes that are equally good, the one of the lowest rank."""
    return int(nodes[np.argmin(rank[nodes])])
