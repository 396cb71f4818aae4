"""Fragmentation gradient descent as published (Weng et al., USENIX ATC'23), to the digit.

Typical pods are the most frequent classes of the list that make up 95 % of it. A node's fragmentation is what of its
idle GPU a typical pod could not use, in the mean over them: all of it where the pod does not fit the node or needs no
GPU, else the GPUs with less left than it wants. The node (and GPU) that a pod fragments least wins: the score is
int(100 x sigmoid(decrease of fragmentation, in GPUs)).

Fragmentation is kept as an integer (milli GPUs times pods), so equal decreases are equal whatever the order of a sum.
"""

import numpy as np

from gantree.placement.scoring.fragmentation import NodeStates
from gantree.placement.scoring.share_prices import WHOLE_MILLI
from gantree.sim.openb.lists import PodShape, Workload
from gantree.sim.openb.policies import Choice, lowest_rank
from gantree.sim.openb.room import NO_GPU, Room
from gantree.topology.fabric.fabric import IntArray

TYPICAL_SHARE = 0.95
UNFIT = -1


class Fgd:
    """Scores are kept by shape and node, and made anew only for nodes that changed since."""

    def __init__(self, room: Room, workload: Workload, rank: IntArray, seed: int) -> None:
        self.room, self.shapes, self.rank = room, workload.shapes, rank
        self.typical = _Typical(workload, room.nodes.models)
        self._before = self.typical.fragmentation(room.states(slice(None)))
        self._changed: list[int] = []
        self._scores: dict[PodShape, IntArray] = {}
        self._seen: dict[PodShape, int] = {}

    def choose(self, shape: int, fitting: IntArray) -> Choice:
        """The place of the best score; of equals the node of the lowest rank and on it the lowest GPU."""
        wanted = self.shapes[shape]
        by_gpu = self._up_to_date(wanted)
        best_of_node = by_gpu[fitting].max(axis=1)
        node = lowest_rank(fitting[best_of_node == best_of_node.max()], self.rank)
        return Choice(node, int(np.argmax(by_gpu[node])) if wanted.is_share else NO_GPU)

    def _up_to_date(self, wanted: PodShape) -> IntArray:
        """score[node, gpu] (one column for pods that take no share)."""
        if wanted not in self._scores:
            nodes = np.arange(len(self.rank))
            columns = self.room.gpu_milli.shape[1] if wanted.is_share else 1
            self._scores[wanted] = np.full((len(nodes), columns), UNFIT, dtype=np.int64)
        else:
            nodes = np.unique(np.array(self._changed[self._seen[wanted] :], dtype=np.int64))
        self._seen[wanted] = len(self._changed)
        scores = self._scores[wanted]
        if len(nodes):
            scores[nodes] = UNFIT
            nodes = nodes[self.room.fits(wanted)[nodes]]
        if len(nodes):
            scores[nodes] = self._score(wanted, nodes)
        return scores

    def _score(self, wanted: PodShape, nodes: IntArray) -> IntArray:
        before = self.room.states(nodes)
        after = _share_taken(before, wanted) if wanted.is_share else _whole_taken(before, wanted)
        choices = len(after) // len(nodes)
        decrease = np.repeat(self._before[nodes], choices) - self.typical.fragmentation(after)
        gpus = decrease / self.typical.pods / WHOLE_MILLI
        scores = (100 / (1 + np.exp(-gpus))).astype(np.int64).reshape(len(nodes), choices)
        if wanted.is_share:
            scores[before.gpu_milli < wanted.gpu_milli] = UNFIT
        return scores

    def placed(self, node: int) -> None:
        """Note what the node's fragmentation is now."""
        self._changed.append(node)
        self._before[node] = self.typical.fragmentation(self.room.states(slice(node, node + 1)))[0]


class _Typical:
    """The typical pods: cpu_milli[class], gpus[class], gpu_milli[class], count[class]."""

    def __init__(self, workload: Workload, models: tuple[str, ...]) -> None:
        count_of_class: dict[tuple[int, int, int, tuple[str, ...]], int] = {}
        for shape, count in zip(workload.shapes, workload.pods_of_shape, strict=True):
            key = (shape.cpu_milli, shape.gpus, shape.gpu_milli, shape.models)
            count_of_class[key] = count_of_class.get(key, 0) + count
        kept = _most_frequent(count_of_class)
        self.count = np.array([count_of_class[key] for key in kept], dtype=np.int64)
        self.pods = int(self.count.sum())
        self.cpu_milli, self.gpus, self.gpu_milli = np.array([key[:3] for key in kept]).T
        self.admits = np.array(
            [[not key[3] or model in key[3] for key in kept] for model in models]
        )

    def fragmentation(self, states: NodeStates) -> IntArray:
        """Idle milli GPUs that typical pods cannot use, summed over these: fragmentation[state]."""
        left = states.gpu_milli
        idle, most = left.sum(axis=1), left.max(axis=1)
        whole = (left == WHOLE_MILLI).sum(axis=1)
        fits = (states.cpu_milli[:, None] >= self.cpu_milli) & self.admits[states.model]
        fits &= np.where(
            self.gpus == 1, most[:, None] >= self.gpu_milli, whole[:, None] >= self.gpus
        )
        fits &= self.gpus > 0
        too_small = (left[:, :, None] < self.gpu_milli) * left[:, :, None]
        unusable = np.where(fits, too_small.sum(axis=1), idle[:, None])
        fragmentation: IntArray = unusable @ self.count
        return fragmentation


def _most_frequent(
    count_of_class: dict[tuple[int, int, int, tuple[str, ...]], int],
) -> list[tuple[int, int, int, tuple[str, ...]]]:
    """The most frequent classes, until they are TYPICAL_SHARE of all."""
    falling = sorted(count_of_class, key=lambda key: (-count_of_class[key], key))
    total, so_far, kept = sum(count_of_class.values()), 0, []
    for key in falling:
        kept.append(key)
        so_far += count_of_class[key]
        if so_far >= TYPICAL_SHARE * total:
            break
    return kept


def _share_taken(before: NodeStates, wanted: PodShape) -> NodeStates:
    """A state per node and GPU, node by node; where a GPU has too little left the state means nothing."""
    nodes, gpus = before.gpu_milli.shape
    taken = wanted.gpu_milli * np.eye(gpus, dtype=np.int64)
    left = np.maximum(before.gpu_milli[:, None, :] - taken, 0).reshape(nodes * gpus, gpus)
    row = np.repeat(np.arange(nodes), gpus)
    return NodeStates(
        before.cpu_milli[row] - wanted.cpu_milli, before.memory_MiB[row], before.model[row], left
    )


def _whole_taken(before: NodeStates, wanted: PodShape) -> NodeStates:
    """A state per node, the first free GPUs taken."""
    whole = before.gpu_milli == WHOLE_MILLI
    taken = whole & (whole.cumsum(axis=1) <= wanted.gpus)
    left = np.where(taken, 0, before.gpu_milli)
    cpu_milli = before.cpu_milli - wanted.cpu_milli
    return NodeStates(cpu_milli, before.memory_MiB, before.model, left)
