"""Tori as arrays: equal pieces stacked, divided into cells; all boxes of a shape are counted at once.

A piece is what fixed links join: a torus, or one cube of a torus whose cubes are joined by switches (`tori`). Pieces
that are alike (same size, host, seams and legal shapes) stand in one array, so that a hundred pods are one question.

A cell is the smallest part that matters for a shape: along each axis a host, or, where the shape takes a part of a
host, that part. In cells every box is whole numbers, wherever it may start, and arrays have the axes [piece, cell along
each axis]. All windows close over the seam; where an axis does not, boxes that would reach over it are no legal
starts, and nothing is counted for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.fabric.tori import TorusIndex, tori_of
from gantree.topology.hardware.tpu_slices import Shape

Int32Array = NDArray[np.int32]
"""Counts of boxes or cells: small numbers, and half as much to move."""
Scalar = TypeVar("Scalar", bound=np.generic)

KEPT_TABLES = 4096
"""Tables of legal starts remembered; a site has some dozens of shapes on a few kinds of torus."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Equal pieces: node_at[piece, host along each axis], torus_of_piece[piece] (index in tori).

    odd: some node has more or fewer GPUs than its place on the grid; most_gpus is the largest number of a node.
    """

    tori: tuple[TorusIndex, ...]
    node_at: IntArray
    torus_of_piece: IntArray
    odd: bool
    most_gpus: int

    @property
    def any_torus(self) -> TorusIndex:
        """Return one torus: all are of one kind."""
        return self.tori[0]

    @property
    def host(self) -> Shape:
        """GPUs of a node along each axis."""
        return self.any_torus.torus.host

    @property
    def points(self) -> bool:
        """Whether a node is one point of the grid, whatever it holds."""
        return prod(self.host) == 1 and self.odd


@lru_cache(maxsize=8)
def pieces_of(fabric: Fabric) -> tuple[Pieces, ...]:
    """All tori of a fabric, those alike together, in the site's order. Raises BadInput as `tori_of` does."""
    alike: dict[object, list[TorusIndex]] = {}
    for index in tori_of(fabric):
        torus = index.torus
        key = (torus.dims, torus.host, torus.wrap, torus.cube, index.rule)
        alike.setdefault(key, []).append(index)
    return tuple(_pieces(fabric, tuple(tori)) for tori in alike.values())


def _pieces(fabric: Fabric, tori: tuple[TorusIndex, ...]) -> Pieces:
    any_torus = tori[0]
    node_at = np.concatenate([_cut(index) for index in tori])
    torus_of_piece = np.repeat(np.arange(len(tori)), len(node_at) // len(tori))
    gpus_at = fabric.gpus_of_node[node_at]
    odd = bool((gpus_at != prod(any_torus.torus.host)).any())
    return Pieces(tori, node_at, torus_of_piece, odd, int(gpus_at.max()))


def _cut(index: TorusIndex) -> IntArray:
    """The nodes of a torus piece by piece, pieces in row-major order."""
    inside = [size // each for size, each in zip(index.piece, index.torus.host, strict=True)]
    counts = [size // each for size, each in zip(index.torus.dims, index.piece, strict=True)]
    split = [side for pair in zip(counts, inside, strict=True) for side in pair]
    axes = [*range(0, len(split), 2), *range(1, len(split), 2)]
    return index.node_at.reshape(split).transpose(axes).reshape(-1, *inside)


# ----- cells


def cell_of(pieces: Pieces, shape: Shape) -> Shape:
    """GPUs of a cell along each axis, for boxes of a legal shape."""
    return tuple(min(size, each) for size, each in zip(shape, pieces.host, strict=True))


def in_cells(shape: Shape, cell: Shape) -> Shape | None:
    """A shape counted in cells; None where it is not made of whole ones."""
    if any(size % each for size, each in zip(shape, cell, strict=True)):
        return None
    return tuple(size // each for size, each in zip(shape, cell, strict=True))


@lru_cache(maxsize=KEPT_TABLES)
def legal_starts(pieces: Pieces, shape: Shape, cell: Shape) -> BoolArray:
    """Where boxes of a shape may start, by cell; of shapes that are made of whole cells."""
    starts = np.ones((1,) * len(shape), dtype=np.bool_)
    for axis, size in enumerate(shape):
        along = np.zeros(pieces.any_torus.piece[axis] // cell[axis], dtype=np.bool_)
        along[[at // cell[axis] for at in pieces.any_torus.origins(axis, size)]] = True
        starts = starts & along.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return starts


def boxes_within(pieces: Pieces, cells: BoolArray, shape: Shape, cell: Shape) -> BoolArray:
    """Where boxes of a shape may start that lie wholly in the cells that are True: [piece, cell]."""
    sizes = in_cells(shape, cell)
    assert sizes is not None, f"{shape} is not made of cells of {cell}"
    within: BoolArray = runs(cells, sizes) & legal_starts(pieces, shape, cell)
    return within


def boxes_met(places: BoolArray, sizes: Shape, by: Shape) -> Int32Array:
    """How many boxes of `sizes` cells that start at the places a box of `by` cells meets, by its own start."""
    sides = places.shape[1:]
    window = [min(a + b - 1, side) for a, b, side in zip(sizes, by, sides, strict=True)]
    counted = totals(places, window)
    shifts = [size - 1 for size in sizes]
    met: Int32Array = np.roll(counted, shifts, axis=tuple(range(1, counted.ndim)))
    return met


def runs(cells: BoolArray, sizes: Sequence[int]) -> BoolArray:
    """Where all cells of a window of these sizes are True, by the window's start; windows go on over the seam."""
    for axis, size in enumerate(sizes, start=1):
        if size > 1:
            cells = np.concatenate((cells, _part(cells, axis, 0, size - 1)), axis)
            reached = 1
            while reached < size:
                step = min(reached, size - reached)
                length = cells.shape[axis]
                cells = _part(cells, axis, 0, length - step) & _part(cells, axis, step, length)
                reached += step
    return cells


def totals(values: BoolArray, sizes: Sequence[int]) -> Int32Array:
    """Sums over windows of these sizes, by the window's start; windows go on over the seam."""
    sums: Int32Array = values.astype(np.int32)
    for axis, size in enumerate(sizes, start=1):
        side = sums.shape[axis]
        if size == side:
            sums = np.broadcast_to(sums.sum(axis=axis, dtype=np.int32, keepdims=True), sums.shape)
        elif size > 1:
            ahead = (sums, _part(sums, axis, 0, size - 1))
            running = np.cumsum(np.concatenate(ahead, axis), axis, dtype=np.int32)
            ends = _part(running, axis, size - 1, size - 1 + side)
            sums = ends.copy()
            _part(sums, axis, 1, side)[...] -= _part(running, axis, 0, side - 1)
    return sums


def _part(values: NDArray[Scalar], axis: int, start: int, stop: int) -> NDArray[Scalar]:
    """A slice along one axis."""
    return values[(slice(None),) * axis + (slice(start, stop),)]
