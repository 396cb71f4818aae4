"""The shape index: how many members of one shape each node, and so each domain, can still take.

A table is built once per distinct shape and then follows the occupancy's change log: only nodes that were touched
since it was last read are counted again. Slots count members of this one shape alone; members of different
shapes share a node's resources, so their slots do not add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.inside import Layers, members_inside
from gantree.topology.fabric import IntArray, Labels
from gantree.topology.occupancy import Occupancy, memory_KiB, microcpus

MOST_TABLES = 256
"""Shape indexes kept per occupancy; the oldest goes first. A site has some dozens of distinct shapes."""

MOST_SLOTS = 1 << 20
"""Slots of a node for a shape that asks for nothing countable."""


@dataclass(frozen=True, slots=True)
class SlotShape:
    """What one member takes of a node, in whole numbers, and which nodes admit it."""

    gpus: int
    microcpus: int
    memory_KiB: int
    nics: int
    labels: Labels = ()
    models: tuple[str, ...] = ()
    layers: Layers = ()

    @classmethod
    def of(cls, shape: Shape, models: tuple[str, ...], layers: Layers = ()) -> "SlotShape":
        """The slot shape of a member that may use these GPU models (none named: any)."""
        return cls(
            gpus=shape.gpus,
            microcpus=microcpus(shape.cpus),
            memory_KiB=memory_KiB(shape.memory_GiB),
            nics=shape.nics,
            labels=shape.labels,
            models=models,
            layers=layers if shape.gpus else (),
        )


class SlotTable:
    """Slots of one shape: of_node[node] and in_domain[tier][domain]; current after `follow`."""

    def __init__(self, shape: SlotShape, occupancy: Occupancy) -> None:
        fabric = occupancy.fabric
        self.shape = shape
        self.of_node: IntArray = np.zeros(len(fabric.nodes), dtype=np.int64)
        self.in_domain: tuple[IntArray, ...] = ()
        self._admits = fabric.nodes_with(shape.labels, shape.models)
        self._read_all(occupancy)

    def follow(self, occupancy: Occupancy) -> "SlotTable":
        """Count the nodes again that changed since the last time."""
        changed = occupancy.changed_since(self._seen)
        if changed is None or len(changed) * 4 > len(self.of_node):
            self._read_all(occupancy)
        elif changed:
            self._read_some(occupancy, changed)
        return self

    def check(self, occupancy: Occupancy) -> None:
        """Count everything again; AssertionError where the index says otherwise."""
        self.follow(occupancy)
        plain = SlotTable(self.shape, occupancy)
        assert (self.of_node == plain.of_node).all(), f"slots of {self.shape} are stale"
        for sums, plain_sums in zip(self.in_domain, plain.in_domain, strict=True):
            assert (sums == plain_sums).all(), f"sums of {self.shape} are stale"

    def _read_all(self, occupancy: Occupancy) -> None:
        every = np.arange(len(self.of_node))
        self.of_node = self._count(occupancy, every)
        self.in_domain = tuple(
            np.add.reduceat(self.of_node, first[:-1])
            for first in occupancy.fabric.first_node_of_domain
        )
        self._seen = occupancy.version

    def _read_some(self, occupancy: Occupancy, changed: Sequence[int]) -> None:
        nodes = np.array(changed, dtype=np.int64)
        slots = self._count(occupancy, nodes)
        gained = slots - self.of_node[nodes]
        self.of_node[nodes] = slots
        for in_domain, domain_of_node in zip(
            self.in_domain, occupancy.fabric.domain_of_node, strict=True
        ):
            np.add.at(in_domain, domain_of_node[nodes], gained)
        self._seen = occupancy.version

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
        slots[~(self._admits & occupancy.usable_node)[nodes]] = 0
        if shape.layers:
            self._keep_layers(occupancy, nodes, slots)
        return slots

    def _keep_layers(self, occupancy: Occupancy, nodes: IntArray, slots: IntArray) -> None:
        shape = self.shape
        run = shape.layers[-1][0] or 1
        for position in np.flatnonzero(slots):
            node = int(nodes[position])
            inside = members_inside(
                occupancy.fabric.machine_of_node(node),
                occupancy.free_mask_of_node[node],
                shape.gpus,
                shape.layers,
            )
            slots[position] = min(int(slots[position]), inside) // run * run


def slots(occupancy: Occupancy, shape: SlotShape) -> SlotTable:
    """The current index of a shape, kept beside the occupancy."""
    table = occupancy.indexes.get(shape)
    if table is not None:
        assert isinstance(table, SlotTable)
        return table.follow(occupancy)
    if len(occupancy.indexes) >= MOST_TABLES:
        del occupancy.indexes[next(iter(occupancy.indexes))]
    table = occupancy.indexes[shape] = SlotTable(shape, occupancy)
    return table
