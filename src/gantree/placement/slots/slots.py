"""The shape index: slots for members of one shape, by node and by domain of each tier.

A table is built once per distinct shape and then follows the occupancy's change log: only nodes that were touched
since it was last read are counted again. Slots count members of this one shape alone; members of different
shapes share a node's resources, so their slots do not add up.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.machine.intra_node import Layers, members_inside
from gantree.placement.slots.fewest_children import FewestChildren
from gantree.placement.slots.secondary_resources import is_sequential, slots_by_secondary_resources
from gantree.topology.fabric.fabric import Fabric, IntArray, Labels
from gantree.topology.occupancy.occupancy import Occupancy, memory_KiB, microcpus

MOST_TABLES = 256
"""Shape indexes cached per occupancy; the oldest is dropped. A site has some dozens of distinct shapes."""

MOST_SLOTS = 1 << 20
"""Slots of a node for a shape without countable requests."""


@dataclass(frozen=True, slots=True)
class SlotShape:
    """The requests of one member in integers, and the nodes that admit it.

    among is the name of a set of nodes (`Fabric.nodes_named`), None for all. secondary is the shape of a member that
    also requests parts of GPUs, other devices or memory bandwidth (`secondary_resources`); apart is for parts alone.
    """

    gpus: int
    microcpus: int
    memory_KiB: int
    nics: int
    labels: Labels = ()
    models: tuple[str, ...] = ()
    layers: Layers = ()
    among: Hashable = None
    secondary: Shape | None = None
    apart: bool = False

    @classmethod
    def of(
        cls,
        shape: Shape,
        models: tuple[str, ...],
        layers: Layers = (),
        among: Hashable = None,
        apart: bool = False,
    ) -> "SlotShape":
        """The slot shape of a member that may use these GPU models (none named: any), and these nodes.

        apart: members with a part of a GPU must be on different ones.
        """
        part = shape.part
        return cls(
            gpus=shape.gpus,
            microcpus=microcpus(shape.cpus),
            memory_KiB=memory_KiB(shape.memory_GiB),
            nics=shape.nics,
            labels=shape.labels,
            models=models,
            layers=layers if shape.on_gpus else (),
            among=among,
            secondary=shape if part or shape.scarce or shape.memory_GBps else None,
            apart=apart and part,
        )


class SlotTable:
    """Slots of one shape: of_node[node] and in_domain[tier][domain]; current after `follow`.

    All of them are parts of one array over the domains of all tiers (`Fabric.flat_path_of_node`), so that a node that
    changed is one addition along its path.
    """

    def __init__(self, shape: SlotShape, occupancy: Occupancy) -> None:
        fabric = occupancy.fabric
        self.shape = shape
        self._flat: IntArray = np.zeros(fabric.first_of_tier[-1], dtype=np.int64)
        self.in_domain: tuple[IntArray, ...] = tuple(
            self._flat[start:stop] for start, stop in pairwise(fabric.first_of_tier)
        )
        self.of_node = self.in_domain[-1]
        self._fewest_children: dict[int, FewestChildren | None] = {}
        self._path_of_node = fabric.flat_path_of_node
        self._first_of_tier = fabric.first_of_tier
        self._admits = fabric.nodes_with(shape.labels, shape.models)
        if shape.among is not None:
            self._admits = self._admits & fabric.nodes_named[shape.among]
        self._read_all(occupancy)

    def follow(self, occupancy: Occupancy) -> "SlotTable":
        """Count the nodes again that changed since the last time."""
        changed = occupancy.log.since(self._seen)
        if changed is None or len(changed) * 4 > len(self.of_node):
            self._read_all(occupancy)
        elif changed:
            self._read_some(occupancy, changed)
        return self

    def fewest_children(self, tier: int, fabric: Fabric) -> FewestChildren | None:
        """Return the index of the fewest children for a tier; it follows the table from now on."""
        if tier not in self._fewest_children:
            self._fewest_children[tier] = FewestChildren.of(fabric, tier, self.in_domain[tier + 1])
        return self._fewest_children[tier]

    def check(self, occupancy: Occupancy) -> None:
        """Count everything again; AssertionError where the index says otherwise."""
        self.follow(occupancy)
        self._check_kept(occupancy)
        plain = SlotTable(self.shape, occupancy)
        assert (self.of_node == plain.of_node).all(), f"slots of {self.shape} are stale"
        for sums, plain_sums in zip(self.in_domain, plain.in_domain, strict=True):
            assert (sums == plain_sums).all(), f"sums of {self.shape} are stale"

    def _read_all(self, occupancy: Occupancy) -> None:
        every = np.arange(len(self.of_node))
        self.of_node[:] = self._count(occupancy, every)
        for sums, first in zip(self.in_domain, occupancy.fabric.first_node_of_domain, strict=True):
            sums[:] = np.add.reduceat(self.of_node, first[:-1])
        self._fewest_children.clear()
        self._seen = occupancy.version

    def _read_some(self, occupancy: Occupancy, changed: Sequence[int]) -> None:
        nodes = np.array(changed, dtype=np.int64)
        slots = self._count(occupancy, nodes)
        gained = slots - self.of_node[nodes]
        path = self._path_of_node[nodes]
        np.add.at(self._flat, path, gained[:, None])
        for tier, index in self._fewest_children.items():
            if index is not None:
                flat = path[:, tier]
                domains = flat[np.append(flat[1:] != flat[:-1], True)]
                index.follow(domains - self._first_of_tier[tier], self.in_domain[tier + 1])
        self._seen = occupancy.version

    def _check_kept(self, occupancy: Occupancy) -> None:
        for tier, index in self._fewest_children.items():
            fresh = FewestChildren.of(occupancy.fabric, tier, self.in_domain[tier + 1])
            if index is not None and fresh is not None:
                assert (index.slots_of_largest == fresh.slots_of_largest).all(), (
                    f"fewest children of {self.shape} are stale"
                )

    def _count(self, occupancy: Occupancy, nodes: IntArray) -> IntArray:
        shape = self.shape
        slots = np.full(len(nodes), MOST_SLOTS, dtype=np.int64)
        for asked, free in (
            (shape.gpus, occupancy.free_gpus_of_node),
            (shape.microcpus, occupancy.free_microcpus_of_node),
            (shape.memory_KiB, occupancy.free_memory_KiB_of_node),
            (shape.nics, occupancy.free_nics_of_node),
        ):
            if asked:
                np.minimum(slots, free[nodes] // asked, out=slots)
        slots *= self._admits[nodes]
        slots *= occupancy.usable_node[nodes]
        if occupancy.fabric.cluster.spares:
            slots *= ~occupancy.held_back_node[nodes]
        if shape.secondary is not None:
            secondary = slots_by_secondary_resources(
                occupancy, nodes, shape.secondary, shape.apart, shape.layers
            )
            np.minimum(slots, secondary, out=slots)
        if shape.layers:
            self._keep_layers(occupancy, nodes, slots)
        return slots

    def _keep_layers(self, occupancy: Occupancy, nodes: IntArray, slots: IntArray) -> None:
        shape = self.shape
        run = shape.layers[-1][0] or 1
        if shape.secondary is not None and is_sequential(shape.secondary):
            slots -= slots % run
            return
        for position in np.flatnonzero(slots):
            node = int(nodes[position])
            inside = members_inside(
                occupancy.fabric.machine_of_node(node),
                occupancy.free_mask_of_node[node],
                shape.gpus,
                shape.layers,
            )
            slots[position] = min(int(slots[position]), inside) // run * run


def slots_of(
    occupancy: Occupancy,
    shape: Shape,
    models: tuple[str, ...],
    layers: Layers = (),
    among: Hashable = None,
    apart: bool = False,
) -> SlotTable:
    """As `slots`, by shape and models of a job: cached without converting the shape again."""
    asked = (shape, models, layers, among, apart)
    table = occupancy.indexes.get(asked)
    if table is not None:
        assert isinstance(table, SlotTable)
        return table.follow(occupancy)
    found = slots(occupancy, SlotShape.of(shape, models, layers, among, apart))
    _keep(occupancy, asked, found)
    return found


def slots(occupancy: Occupancy, shape: SlotShape) -> SlotTable:
    """The current index of a shape, cached beside the occupancy."""
    table = occupancy.indexes.get(shape)
    if table is not None:
        assert isinstance(table, SlotTable)
        return table.follow(occupancy)
    table = SlotTable(shape, occupancy)
    _keep(occupancy, shape, table)
    return table


def _keep(occupancy: Occupancy, key: Hashable, table: SlotTable) -> None:
    """Cache a table beside the occupancy; of too many, the oldest is dropped. Other indexes stay."""
    if len(occupancy.indexes) >= MOST_TABLES:
        tables = (key for key, kept in occupancy.indexes.items() if isinstance(kept, SlotTable))
        oldest = next(tables, None)
        if oldest is not None:
            del occupancy.indexes[oldest]
    occupancy.indexes[key] = table
