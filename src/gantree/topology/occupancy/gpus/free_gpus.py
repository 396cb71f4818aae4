"""Free whole GPUs: a mask for each node, and their number in each domain of every tier."""

from itertools import pairwise
from typing import Self

import numpy as np

from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.node_room import mask_of_gpus


class FreeGpus:
    """mask_of_node[node] has a bit per free GPU, of_tier[tier][domain] is how many a domain has.

    The numbers of all tiers are one array, so that a change is one addition for each domain above the node.
    """

    def __init__(self, fabric: Fabric) -> None:
        """All GPUs of the fabric."""
        self.mask_of_node: list[int] = [(1 << gpus) - 1 for gpus in fabric.gpus_of_node.tolist()]
        self._paths: list[list[int]] = fabric.flat_path_of_node.tolist()
        self._first_of_tier = fabric.first_of_tier
        first_nodes = fabric.first_node_of_domain
        self._slice(
            np.concatenate(
                [np.add.reduceat(fabric.gpus_of_node, first[:-1]) for first in first_nodes]
            )
        )

    def add(self, node: int, gpus: tuple[int, ...], sign: int) -> None:
        """Count GPUs of a node as free (+1) or as held (-1)."""
        self.mask_of_node[node] ^= mask_of_gpus(gpus)
        numbers, more = self._view, sign * len(gpus)
        for domain in self._paths[node]:
            numbers[domain] += more

    def set_mask(self, node: int, mask: int) -> None:
        """Say which GPUs of a node are free."""
        more = mask.bit_count() - self.mask_of_node[node].bit_count()
        self.mask_of_node[node] = mask
        for domain in self._paths[node]:
            self._view[domain] += more

    def copy(self) -> Self:
        """The same, to be changed on its own."""
        twin = type(self).__new__(type(self))
        twin.mask_of_node = self.mask_of_node.copy()
        twin._paths, twin._first_of_tier = self._paths, self._first_of_tier
        twin._slice(self._numbers.copy())
        return twin

    def _slice(self, numbers: IntArray) -> None:
        """Name the parts of the array; reading one number of a view is quicker than of an array."""
        self._numbers, self._view = numbers, numbers.data
        self.of_tier = tuple(numbers[start:stop] for start, stop in pairwise(self._first_of_tier))
