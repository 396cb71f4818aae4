"""The largest free box smaller than a gang's that holds members of its shape: refusals name and offer it.

Where shapes are sold, each is looked for, largest first. Where any box is legal there are too many to try: boxes grow
axis by axis, and stop as soon as none of their size is free or none could beat the best (`largest_window`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from gantree.placement.torus.choice import has_place
from gantree.placement.torus.request import BoxRequest, Layout, layout_of
from gantree.placement.torus.room import cells_for
from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.fabric.torus_pieces import Pieces, cell_of, runs
from gantree.topology.hardware.tpu_slices import Shape
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class FreeBox:
    """A free box: its shape in GPUs (nodes, where these are points of the grid), and how many members it holds."""

    shape: Shape
    members: int


def largest_below(
    occupancy: Occupancy,
    pieces: Pieces,
    box_request: BoxRequest,
    on_point: int,
    nodes: BoolArray | None,
) -> FreeBox | None:
    """Return the largest free box for fewer members than the gang has; None where not one of them has a place.

    on_point members are on each node where nodes are points; nodes, if given, are those to use.
    """
    if not (pieces.points or box_request.role.shape.gpus):
        return None
    if pieces.any_torus.rule is not None or pieces.any_torus.torus.cube:
        return _first_free(occupancy, pieces, box_request, on_point, nodes)
    best: FreeBox | None = None
    for cell in product(*map(_divisors, pieces.host)):
        on_host = on_point if pieces.points else _fit_in(box_request, cell)
        if on_host:
            room = _largest_of_cells(
                occupancy, pieces, box_request, Layout(cell, (), on_host), nodes
            )
            if room is not None and (best is None or room.members > best.members):
                best = room
    return best


def resized(box_request: BoxRequest, members: int, box: Shape) -> BoxRequest:
    """The same gang with another number of members, on a box."""
    return replace(box_request, role=replace(box_request.role, members=members), box=box)


def _first_free(
    occupancy: Occupancy,
    pieces: Pieces,
    box_request: BoxRequest,
    on_point: int,
    nodes: BoolArray | None,
) -> FreeBox | None:
    """The largest of the legal shapes that is free for as many members as it holds."""
    fits: dict[tuple[Shape, int], BoolArray] = {}
    for shape in legal_shapes(pieces):
        on_points = prod(shape) * on_point
        members = on_points if pieces.points else prod(shape) // box_request.role.shape.gpus
        if not 0 < members < box_request.role.members:
            continue
        layout = layout_of(pieces, resized(box_request, members, shape), shape)
        if layout is not None:
            key = (cell_of(pieces, shape), layout.members_on_host)
            if key not in fits:
                fits[key] = cells_for(occupancy, pieces, box_request, layout, nodes)
            if has_place(pieces, layout, fits[key]):
                return FreeBox(shape, members)
    return None


@lru_cache(maxsize=256)
def legal_shapes(pieces: Pieces) -> tuple[Shape, ...]:
    """Legal shapes, largest first: all boxes of one piece, and of each number of joined cubes the most compact."""
    any_torus = pieces.any_torus
    found = dict.fromkeys(_in_one_piece(pieces))
    cube = prod(any_torus.torus.cube) if any_torus.torus.cube else 0
    for cubes in range(1, prod(any_torus.torus.dims) // cube + 1 if cube else 1):
        found |= dict.fromkeys(any_torus.shapes(cubes * cube)[:1])
    return tuple(sorted(found, key=prod, reverse=True))


def _in_one_piece(pieces: Pieces) -> Iterator[Shape]:
    rule, piece = pieces.any_torus.rule, pieces.any_torus.piece
    if rule is None:
        shapes: Iterator[Shape] = product(*(range(1, size + 1) for size in piece))
    else:
        shapes = rule.within(piece)
    yield from (
        s for s in shapes if pieces.any_torus.is_legal(s) and pieces.any_torus.cubes_joined(s) < 2
    )


# ----- where any box is legal


def _divisors(side: int) -> list[int]:
    return [part for part in range(side, 0, -1) if side % part == 0]


def _fit_in(box_request: BoxRequest, cell: Shape) -> int:
    """How many members fill the part of a host that lies in a cell; 0 where none do exactly."""
    members, over = divmod(prod(cell), box_request.role.shape.gpus)
    return 0 if over else members


def _largest_of_cells(
    occupancy: Occupancy,
    pieces: Pieces,
    box_request: BoxRequest,
    one: Layout,
    nodes: BoolArray | None,
) -> FreeBox | None:
    """The largest free box made of such cells, one of which holds members as told: it grows only over whole hosts."""
    fit = cells_for(occupancy, pieces, box_request, one, nodes)
    sides = tuple(
        side if part == host else 1
        for side, part, host in zip(fit.shape[1:], one.shape, pieces.host, strict=True)
    )
    most = (box_request.role.members - 1) // one.members_on_host
    cells, sizes = largest_window(_seams_shut(fit, pieces.any_torus.wrap), sides, most)
    shape = tuple(size * part for size, part in zip(sizes, one.shape, strict=False))
    return FreeBox(shape, cells * one.members_on_host) if cells else None


def _seams_shut(cells: BoolArray, wrap: tuple[bool, ...]) -> BoolArray:
    """Cells with a plane of False behind every axis that does not close: no window reaches over its seam."""
    shut = [(0, 0), *((0, 0 if closes else 1) for closes in wrap)]
    return np.pad(cells, shut)


def largest_window(cells: BoolArray, sides: Shape, most: int) -> tuple[int, Shape]:
    """The largest window of at most so many cells that are all True: (cells in it, its sizes); (0, ()) for none.

    Cells have the axes [piece, cell along each axis]; windows go on over the seam and are no longer than the sides.
    """
    axis = cells.ndim - len(sides)
    if not cells.any() or most < 1:
        return 0, ()
    if len(sides) == 1:
        size = _longest(cells, axis, min(sides[0], most))
        return size, (size,)
    best: tuple[int, Shape] = (0, ())
    within = cells
    for size in range(1, min(sides[0], most) + 1):
        if size > 1:
            within = within & np.roll(cells, 1 - size, axis)
            if not within.any():
                break
        if size * min(prod(sides[1:]), most // size) > best[0]:
            rest, sizes = largest_window(within, sides[1:], most // size)
            best = max(best, (size * rest, (size, *sizes)), key=lambda found: found[0])
    return best


def _longest(cells: BoolArray, axis: int, most: int) -> int:
    """The longest run of True along an axis, at most so long, where there is one of 1."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        sizes = [1] * (cells.ndim - 1)
        sizes[axis - 1] = middle
        low, high = (middle, high) if runs(cells, sizes).any() else (low, middle - 1)
    return low
