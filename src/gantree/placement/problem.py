"""One question to the search: a gang in numbers, an occupancy, and one choice of GPU models per role."""

from dataclasses import dataclass

import numpy as np

from gantree.placement.inside import ALL, Layers
from gantree.placement.slots import SlotShape, SlotTable, slots
from gantree.placement.wish import RoleWish, Wish
from gantree.topology.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy import Occupancy

Counts = tuple[int, ...]
Spread = list[tuple[int, Counts]]
"""(node index, members of each role there), in topology order; only nodes that hold some."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Place members[role] members of tables[role] such that the wish holds. No GPU model is left to choose."""

    occupancy: Occupancy
    wish: Wish
    members: Counts
    tables: tuple[SlotTable, ...]

    @classmethod
    def of(
        cls, occupancy: Occupancy, wish: Wish, models_of_role: tuple[tuple[str, ...], ...]
    ) -> "Problem":
        """A wish with these models for each role (none: any)."""
        tables = tuple(
            slots(occupancy, SlotShape.of(role.shape, models, _layers(wish, role)))
            for role, models in zip(wish.roles, models_of_role, strict=True)
        )
        return cls(occupancy, wish, tuple(role.members for role in wish.roles), tables)

    @property
    def fabric(self) -> Fabric:
        """The tree that is searched."""
        return self.occupancy.fabric

    def domains_with_room(self, tier: int) -> IntArray:
        """Domains of a tier whose sums could hold the gang; the others cannot."""
        enough: BoolArray = self.tables[0].in_domain[tier] >= self.members[0]
        for table, members in zip(self.tables[1:], self.members[1:], strict=True):
            enough &= table.in_domain[tier] >= members
        gpus = sum(
            table.shape.gpus * members
            for table, members in zip(self.tables, self.members, strict=True)
        )
        if len(self.tables) > 1 and gpus:
            enough &= self.occupancy.free_gpus_in_domain(tier) >= gpus
        return np.flatnonzero(enough)


def _layers(wish: Wish, role: RoleWish) -> Layers:
    """Layers inside a node, with the gang's own where it must be together inside one domain there."""
    if wish.together is None:
        return role.layers
    return (
        (ALL, wish.together),
        *(layer for layer in role.layers if layer != (ALL, wish.together)),
    )
