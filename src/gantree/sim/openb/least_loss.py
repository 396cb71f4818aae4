"""The policy `gantree`: the packing score of `gantree place`, with the classes of the pod list as the demand.

As FGD does, it knows how frequent each class is in the list; it never sees an arrival before its time.
"""

from collections.abc import Iterator

import numpy as np

from gantree.placement.scoring.fragmentation import Demand, DemandClass
from gantree.placement.scoring.fragmentation_state import MemberDemand
from gantree.placement.scoring.packing import LeastLoss
from gantree.sim.openb.lists import PodShape, Workload
from gantree.sim.openb.policies import Choice
from gantree.sim.openb.room import NO_GPU, Room
from gantree.topology.fabric.fabric import IntArray


class LeastLossOfPods:
    """The place that takes least from the demand to come; of equals the node of the lowest rank."""

    def __init__(self, room: Room, workload: Workload, rank: IntArray, seed: int) -> None:
        self.room, self.rank = room, rank
        self.asked = [
            MemberDemand(shape.cpu_milli, 0, shape.gpus, shape.gpu_milli)
            for shape in workload.shapes
        ]
        demand = demand_of(workload, room.nodes.models)
        self.least = LeastLoss(demand, room.states(slice(None)))

    def choose(self, shape: int, fitting: IntArray) -> Choice:
        """The place of least loss."""
        asked = self.asked[shape]
        node, left = next(self.least.places([asked], [fitting], self._by_rank))
        if not asked.is_share:
            return Choice(node, NO_GPU)
        return Choice(node, int(np.flatnonzero(self.room.gpu_milli[node] == left)[0]))

    def _by_rank(self, nodes: IntArray) -> Iterator[int]:
        ranks = self.rank[nodes]
        yield int(np.argmin(ranks))
        yield from np.argsort(ranks, kind="stable")[1:].tolist()

    def placed(self, node: int) -> None:
        """Tell the score what is left on the node."""
        states = self.room.states(slice(node, node + 1))
        self.least.state.changed(np.array([node]), states)


def demand_of(workload: Workload, models: tuple[str, ...]) -> Demand:
    """The classes of a pod list, by CPU, GPUs and models. Memory is left out as FGD leaves it out of its classes."""
    pods = zip(workload.shapes, workload.pods_of_shape, strict=True)
    return Demand.of([_class(shape, count, models) for shape, count in pods])


def _class(shape: PodShape, count: int, models: tuple[str, ...]) -> DemandClass:
    """A class; models that no node has get numbers that no node has."""
    numbers = tuple(models.index(name) if name in models else len(models) for name in shape.models)
    return DemandClass(
        shape.cpu_milli, shape.gpus, shape.gpu_milli, count, models=tuple(sorted(set(numbers)))
    )
