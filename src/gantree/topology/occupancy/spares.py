"""Spare nodes: in each domain of a tier, the last wholly free nodes are held back.

A rack of 18 nodes of which gangs use 16 has two left to take the place of broken ones. Which two is decided anew
whenever a node becomes free or taken: the last free ones in topology order, all of them where there are fewer.
Searches leave held-back nodes out; `Occupancy.take` may use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gantree.model.errors import BadInput
from gantree.topology.fabric.fabric import BoolArray, Fabric


@dataclass(frozen=True, slots=True, eq=False)
class Spares:
    """How many nodes are held back, by tier number, and which: held_back[tier number][node]. No tier where none are.

    usable_node and empty_node are masks; nodes that are both may be held back. held_back_node is the mask of the nodes
    that some tier holds back.
    """

    fabric: Fabric
    most_of_tier: tuple[tuple[int, int], ...]
    usable_node: BoolArray
    empty_node: BoolArray
    held_back: dict[int, BoolArray]
    held_back_node: BoolArray

    @classmethod
    def of(cls, fabric: Fabric, usable_node: BoolArray) -> "Spares":
        """What the site holds back while nobody holds anything. BadInput for no such tier, or fewer than 0 nodes."""
        most = []
        for name, count in fabric.cluster.spares.items():
            if name not in fabric.tiers[:-1]:
                allowed = ", ".join(fabric.tiers[:-1])
                raise BadInput(f"spares: {name!r} is no tier above the node; allowed: {allowed}")
            if count < 0:
                raise BadInput(f"spares: {name}: {count} nodes cannot be held back")
            if count:
                most.append((fabric.tiers.index(name), count))
        held_back = {tier: np.zeros_like(usable_node) for tier, _ in most}
        empty, none = np.ones_like(usable_node), np.zeros_like(usable_node)
        spares = cls(fabric, tuple(most), usable_node.copy(), empty, held_back, none)
        for tier, count in spares.most_of_tier:
            for domain in range(fabric.domains(tier)):
                spares._count_again(spares._hold_back(tier, domain, count))
        return spares

    @property
    def any_kept(self) -> bool:
        """Whether nodes are held back in a domain of any tier."""
        return bool(self.most_of_tier)

    def set_empty(self, node: int, empty: bool) -> Sequence[int]:
        """Say whether nobody holds anything of a node; the nodes that are now held back, or no longer."""
        before = bool(self.empty_node[node])
        self.empty_node[node] = empty
        return self._choose_again(node) if before != empty and self.usable_node[node] else ()

    def set_usable(self, node: int, usable: bool) -> Sequence[int]:
        """Say whether a node may be used; the nodes that are now held back, or no longer."""
        before = bool(self.usable_node[node])
        self.usable_node[node] = usable
        return self._choose_again(node) if before != usable and self.empty_node[node] else ()

    def copy(self) -> "Spares":
        """The same, to be changed on its own."""
        return Spares(
            self.fabric,
            self.most_of_tier,
            self.usable_node.copy(),
            self.empty_node.copy(),
            {tier: held.copy() for tier, held in self.held_back.items()},
            self.held_back_node.copy(),
        )

    def _choose_again(self, node: int) -> Sequence[int]:
        """Choose the spares of all domains around a node; the nodes that are now held back, or no longer."""
        ranges = [
            self._hold_back(tier, int(self.fabric.domain_of_node[tier][node]), count)
            for tier, count in self.most_of_tier
        ]
        return [changed for nodes in ranges for changed in self._count_again(nodes)]

    def _count_again(self, nodes: slice) -> list[int]:
        """Bring the mask of all tiers up to date for a range of nodes; the nodes that changed."""
        held = np.logical_or.reduce([of_tier[nodes] for of_tier in self.held_back.values()])
        changed: list[int] = (
            nodes.start + np.flatnonzero(held != self.held_back_node[nodes])
        ).tolist()
        self.held_back_node[nodes] = held
        return changed

    def _hold_back(self, tier: int, domain: int, count: int) -> slice:
        """Choose the spares of a domain; the range of its nodes."""
        start, stop = self.fabric.first_node_of_domain[tier][domain : domain + 2].tolist()
        free = self.usable_node[start:stop] & self.empty_node[start:stop]
        last_free = start + np.flatnonzero(free)[-count:]
        self.held_back[tier][start:stop] = False
        self.held_back[tier][last_free] = True
        return slice(start, stop)
