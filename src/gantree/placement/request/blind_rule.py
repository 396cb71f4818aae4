"""Placement rules that are blind to the topology: which of several nodes, GPUs or boxes that fit is taken.

    first-fit   the first node, by its place in the fabric, and the first free GPUs on it
    best-fit    the fullest node, as the scoring strategy MostAllocated of kube-scheduler; GPUs as first-fit
    random      any of them, each as likely as the others

A draw is a hash of the policy's seed, the job's name, and how many draws came before it for this place, so recovery, a
replay and a second run draw the same. What fits is decided elsewhere, and by no rule.
"""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np

from gantree.model.jobs import Job, Shape
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.topology.fabric.fabric import BoolArray, Fabric, FloatArray
from gantree.topology.occupancy.node_room import microcpus
from gantree.topology.occupancy.occupancy import Occupancy

PickNode = Callable[[BoolArray], int | None]
"""From a mask of nodes to one of them; None of an empty mask."""
GpuOrder = Callable[[int], tuple[int, ...]]
"""By node, by index: its GPUs in the order in which they are taken."""


class BlindRule:
    """One rule while one gang is placed. draws: whether it draws, so that each member asks anew."""

    def __init__(self, preferences: PlacementPreferences, job: Job) -> None:
        self.draws = preferences.placement == "random"
        self._fills = preferences.placement == "best-fit"
        self._key = f"{preferences.seed}/{job.name}/"
        self._drawn = 0

    @classmethod
    def of(cls, preferences: PlacementPreferences, job: Job) -> "BlindRule | None":
        """The rule for a job; None where places are chosen by the topology."""
        return cls(preferences, job) if preferences.blind else None

    def position(self, count: int) -> int:
        """Which of `count` equal places is taken: the first, or any."""
        return self._draw(count) if self.draws else 0

    def picker(self, occupancy: Occupancy, shape: Shape) -> PickNode:
        """Picks the node of a member of this shape; what is free is read now, and members only add to fullness."""
        rank = _free_share(occupancy, shape) if self._fills else None

        def pick(fits: BoolArray) -> int | None:
            nodes = fits.nonzero()[0]
            if not len(nodes):
                return None
            at = self.position(len(nodes)) if rank is None else int(rank[nodes].argmin())
            return int(nodes[at])

        return pick

    def gpu_order(self, fabric: Fabric) -> GpuOrder:
        """The order in which the GPUs of a node are taken: by index, or one that is drawn for each node."""

        def order(node: int) -> tuple[int, ...]:
            gpus = list(range(int(fabric.gpus_of_node[node])))
            return tuple(gpus.pop(self.position(len(gpus))) for _ in range(len(gpus)))

        return order

    def node_cost(self, free_gpus: int) -> int:
        """What a node costs a gang that grows, at most its free GPUs: the least cost, then the first node is taken."""
        return free_gpus if self._fills else self.position(free_gpus + 1)

    def _draw(self, count: int) -> int:
        """A number from 0 to count - 1."""
        self._drawn += 1
        text = f"{self._key}{self._drawn}".encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % count


def _free_share(occupancy: Occupancy, shape: Shape) -> FloatArray:
    """By node the share of its GPUs that stay free with one more member; of its CPUs for members without GPUs."""
    fabric = occupancy.fabric
    free, whole, asked = occupancy.free_gpus_of_node, fabric.gpus_of_node, shape.gpus
    if not shape.on_gpus:
        of_machine = [microcpus(machine.cpus or 0) for machine in fabric.machines]
        free, asked = occupancy.free_microcpus_of_node, microcpus(shape.cpus)
        whole = np.array(of_machine, dtype=np.int64)[fabric.machine_index_of_node]
    share: FloatArray = (free - asked) / np.maximum(whole, 1)
    return share
