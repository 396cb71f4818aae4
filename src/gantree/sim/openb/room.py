"""Free resources of each node while pods fill the cluster, and the nodes on which a pod fits."""

import numpy as np

from gantree.placement.scoring.fragmentation import BoolArray, NodeStates
from gantree.placement.scoring.share_prices import WHOLE_MILLI
from gantree.sim.openb.lists import Nodes, PodShape
from gantree.topology.fabric.fabric import IntArray

NO_GPU = -1


class Room:
    """cpu_milli[node], memory_MiB[node], gpu_milli[node, gpu] left; GPUs in the order of the machine."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.cpu_milli = nodes.cpu_milli.copy()
        self.memory_MiB = nodes.memory_MiB.copy()
        numbers = np.arange(int(nodes.gpus.max()))
        self.gpu_milli: IntArray = WHOLE_MILLI * (numbers[None, :] < nodes.gpus[:, None])
        self._most_left = self.gpu_milli.max(axis=1)
        self._whole = nodes.gpus.copy()
        self._admitting: dict[tuple[str, ...], BoolArray] = {}

    def fits(self, shape: PodShape) -> BoolArray:
        """fits[node]: whether a pod of this shape has room."""
        fits = (self.cpu_milli >= shape.cpu_milli) & (self.memory_MiB >= shape.memory_MiB)
        if shape.is_share:
            fits &= self._most_left >= shape.gpu_milli
        elif shape.gpus:
            fits &= self._whole >= shape.gpus
        return fits & self._admits(shape.models) if shape.models else fits

    def _admits(self, models: tuple[str, ...]) -> BoolArray:
        if models not in self._admitting:
            known = [number for number, name in enumerate(self.nodes.models) if name in models]
            self._admitting[models] = np.isin(self.nodes.model, known)
        return self._admitting[models]

    def place(self, node: int, shape: PodShape, gpu: int) -> None:
        """Take what a pod needs; a share from the GPU named, whole GPUs from the lowest-numbered free ones."""
        self.cpu_milli[node] -= shape.cpu_milli
        self.memory_MiB[node] -= shape.memory_MiB
        left = self.gpu_milli[node]
        if shape.is_share:
            left[gpu] -= shape.gpu_milli
        else:
            left[np.flatnonzero(left == WHOLE_MILLI)[: shape.gpus]] = 0
        self._most_left[node] = left.max()
        self._whole[node] = (left == WHOLE_MILLI).sum()
        assert min(left.min(), self.cpu_milli[node], self.memory_MiB[node]) >= 0, (node, shape)

    def states(self, nodes: IntArray | slice) -> NodeStates:
        """What is left on these nodes."""
        return NodeStates(
            self.cpu_milli[nodes],
            self.memory_MiB[nodes],
            self.nodes.model[nodes],
            self.gpu_milli[nodes],
        )
