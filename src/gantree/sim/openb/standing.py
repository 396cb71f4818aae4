"""The policy `gantree`: the score of `placement.fragmentation`, with the classes of the pod list as the demand.

As FGD does, it knows how frequent each class is in the list; it never sees an arrival before its time.
"""

import numpy as np

from gantree.placement.fragmentation import Demand, DemandClass
from gantree.placement.standing import Asked, Standing
from gantree.sim.openb.lists import PodShape, Workload
from gantree.sim.openb.policies import Choice, lowest_rank
from gantree.sim.openb.room import NO_GPU, Room
from gantree.topology.fabric import IntArray


class LeastLoss:
    """The place that takes least from those to come; of equals the node of the lowest rank."""

    def __init__(self, room: Room, workload: Workload, rank: IntArray, seed: int) -> None:
        self.room, self.rank = room, rank
        self.asked = [
            Asked(shape.cpu_milli, 0, shape.gpus, shape.gpu_milli) for shape in workload.shapes
        ]
        demand = demand_of(workload, room.nodes.models)
        self.standing = Standing(demand, room.states(slice(None)))

    def choose(self, shape: int, fitting: IntArray) -> Choice:
        """The place of least loss."""
        asked = self.asked[shape]
        loss = self.standing.losses(asked, fitting)
        choices = loss.worth.shape[1]
        best = loss.best()
        node = lowest_rank(fitting[best // choices], self.rank)
        if not asked.is_share:
            return Choice(node, NO_GPU)
        choice = int(best[np.flatnonzero(fitting[best // choices] == node)[0]]) % choices
        left = self.standing.gpu_left(node, choice)
        return Choice(node, int(np.flatnonzero(self.room.gpu_milli[node] == left)[0]))

    def placed(self, node: int) -> None:
        """Tell the score what is left on the node."""
        self.standing.changed(np.array([node]), self.room.states(slice(node, node + 1)))


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
