"""Free cells of tori: for one gang (`cells_for`), and for any (`free_cells`).

A host has room for a gang where the shape index (`placement.slots.slots`) has slots for the gang's members on it, so
labels, models, health, CPUs, memory and spares are counted there, and only there. Where a shape takes parts of hosts,
or hosts hold other GPUs than their place on the grid, it matters which GPUs are free: `ChipsFree` keeps that by point
beside the occupancy, following its change log. Hosts with GPUs that are cut into parts (MIG) are left out.
"""

from collections.abc import Iterable
from math import prod

import numpy as np

from gantree.placement.slots.slots import slots_of
from gantree.placement.torus.request import BoxRequest, Layout
from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.fabric.torus_pieces import Pieces, cell_of
from gantree.topology.hardware.tpu_slices import Shape
from gantree.topology.occupancy.occupancy import Occupancy


def cells_for(
    occupancy: Occupancy,
    pieces: Pieces,
    box_request: BoxRequest,
    layout: Layout,
    nodes: BoolArray | None,
) -> BoolArray:
    """Cells in which the gang's members have room, [piece, cell along each axis]; nodes, if given, are those to use."""
    shape = box_request.role.shape
    slots_of_node = slots_of(occupancy, shape, shape.models).of_node
    has_room: BoolArray = slots_of_node[pieces.node_at] >= layout.members_on_host
    if occupancy.parts_of_node and not pieces.points:
        split = np.array(list(occupancy.parts_of_node), dtype=np.int64)
        has_room &= ~np.isin(pieces.node_at, split)
    if nodes is not None:
        has_room &= nodes[pieces.node_at]
    cell = cell_of(pieces, layout.shape)
    if _by_host(pieces, cell):
        return has_room
    return _hosts_to_cells(has_room, pieces, cell) & _chips_to_cells(occupancy, pieces, cell)


def free_cells(occupancy: Occupancy, pieces: Pieces, cell: Shape) -> BoolArray:
    """Cells of usable nodes of which nobody holds anything, [piece, cell along each axis]."""
    usable: BoolArray = occupancy.usable_node[pieces.node_at]
    if not _by_host(pieces, cell):
        return _hosts_to_cells(usable, pieces, cell) & _chips_to_cells(occupancy, pieces, cell)
    gpus_at = occupancy.fabric.gpus_of_node[pieces.node_at]
    free: BoolArray = usable & (occupancy.free_gpus_of_node[pieces.node_at] == gpus_at)
    if not pieces.most_gpus:
        all_cpus = occupancy.emptied().free_microcpus_of_node[pieces.node_at]
        free = free & (occupancy.free_microcpus_of_node[pieces.node_at] == all_cpus)
    return free


def _by_host(pieces: Pieces, cell: Shape) -> bool:
    """Whether a cell is a whole node, whatever GPUs of it are free."""
    return pieces.points or (cell == pieces.host and not pieces.odd)


def _hosts_to_cells(hosts: BoolArray, pieces: Pieces, cell: Shape) -> BoolArray:
    for axis, (each, side) in enumerate(zip(pieces.host, cell, strict=True), start=1):
        if each != side:
            wider: BoolArray = np.repeat(hosts, each // side, axis)
            hosts = wider
    return hosts


def _chips_to_cells(occupancy: Occupancy, pieces: Pieces, cell: Shape) -> BoolArray:
    free_at = chips_free(occupancy, pieces).free_at
    split = [
        part
        for size, side in zip(free_at.shape[1:], cell, strict=True)
        for part in (size // side, side)
    ]
    within = tuple(range(2, len(split) + 1, 2))
    cells: BoolArray = np.logical_and.reduce(free_at.reshape(-1, *split), axis=within)
    return cells


class ChipsFree:
    """free_at[piece, point along each axis]: GPUs that nobody holds; current after `follow`."""

    def __init__(self, pieces: Pieces, occupancy: Occupancy) -> None:
        self._pieces = pieces
        count, *hosts = pieces.node_at.shape
        dims = [hosts * each for hosts, each in zip(hosts, pieces.host, strict=True)]
        self.free_at: BoolArray = np.zeros((count, *dims), dtype=np.bool_)
        places = np.ndindex(*pieces.node_at.shape)
        self._place_of_node = dict(zip(pieces.node_at.ravel().tolist(), places, strict=True))
        self._read(occupancy, self._place_of_node)
        self._seen = occupancy.version

    def follow(self, occupancy: Occupancy) -> "ChipsFree":
        """Read the nodes again that changed since the last time."""
        changed = occupancy.log.since(self._seen)
        self._read(occupancy, self._place_of_node if changed is None else changed)
        self._seen = occupancy.version
        return self

    def check(self, occupancy: Occupancy) -> None:
        """Read everything again; AssertionError where the index says otherwise."""
        self.follow(occupancy)
        plain = ChipsFree(self._pieces, occupancy)
        assert (self.free_at == plain.free_at).all(), "free GPUs of tori are stale"

    def _read(self, occupancy: Occupancy, nodes: Iterable[int]) -> None:
        host = self._pieces.host
        bits = np.arange(prod(host)).reshape(host)
        for node in nodes:
            place = self._place_of_node.get(node)
            if place is not None:
                piece, *at = place
                block = [slice(a * each, (a + 1) * each) for a, each in zip(at, host, strict=True)]
                self.free_at[(piece, *block)] = occupancy.free_mask_of_node[node] >> bits & 1


def chips_free(occupancy: Occupancy, pieces: Pieces) -> ChipsFree:
    """Return the current index of equal pieces, kept beside the occupancy."""
    key = ("chips free", pieces)
    kept = occupancy.indexes.get(key)
    if isinstance(kept, ChipsFree):
        return kept.follow(occupancy)
    made = occupancy.indexes[key] = ChipsFree(pieces, occupancy)
    return made
