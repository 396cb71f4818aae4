"""Chooses among the free boxes: the one after which most boxes stay free for later gangs.

    the best shape that is free anywhere (asked: the one; any: the most compact)
    on tori of the GPU model named first, else in the site's order
    the box after which most boxes of the largest shape can still be cut, of all tori together;
    among those, most boxes of the next smaller, and so on down the ladder; then the first

The ladder has one shape of every size that is legal, from the whole piece down, each at most half as large as the one
before. Two array operations for each rung count, for all places at once, how many free boxes a new box would overlap.
A slice of several cubes overlaps as many wherever its cubes are: it gets the first free cubes of the torus with the
fewest free cubes that has enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from gantree.placement.request.anti_affinity import excluded_nodes
from gantree.placement.request.blind_rule import BlindRule
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.torus.request import BoxRequest, Layout, layouts
from gantree.placement.torus.room import cells_for, free_cells
from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.fabric.torus_pieces import (
    Pieces,
    boxes_met,
    boxes_within,
    cell_of,
    in_cells,
    pieces_of,
)
from gantree.topology.hardware.tpu_slices import Shape
from gantree.topology.occupancy.occupancy import Occupancy

KEPT_LADDERS = 1024
"""Ladders remembered: one for each kind of torus and size of cell."""


@dataclass(frozen=True, slots=True)
class TorusSlice:
    """A place for a gang. starts: (piece, cell along each axis) of its box, or of each cube it joins, row-major."""

    pieces: Pieces
    layout: Layout
    starts: tuple[tuple[int, ...], ...]


def best_slice(
    occupancy: Occupancy,
    box_request: BoxRequest,
    request: TopologyRequest,
    rule: BlindRule | None = None,
) -> TorusSlice | None:
    """Return the best slice for a gang; None where there is none. request holds its other topology requests.

    rule: of the boxes of the best shape that is free it picks one, whatever stays free beside it.
    """
    masks = node_masks(occupancy, request)
    for pieces in by_preference(occupancy, box_request):
        for layout in layouts(pieces, box_request):
            fits = [cells_for(occupancy, pieces, box_request, layout, nodes) for nodes in masks]
            starts = _starts(occupancy, pieces, layout, fits, rule)
            if starts:
                return TorusSlice(pieces, layout, starts)
    return None


def by_preference(occupancy: Occupancy, box_request: BoxRequest) -> list[Pieces]:
    """The tori of a fabric: those of a GPU model that the role names earlier first."""
    models = box_request.role.shape.models

    def place(pieces: Pieces) -> int:
        model = occupancy.fabric.machine_of_node(int(pieces.node_at.flat[0])).gpu
        return models.index(model) if model in models else len(models)

    return sorted(pieces_of(occupancy.fabric), key=place)


def node_masks(occupancy: Occupancy, request: TopologyRequest) -> list[BoolArray | None]:
    """The sets of nodes of which one must hold the gang: one for each domain of a required tier; None for all nodes."""
    fabric = occupancy.fabric
    tier = max(request.whole_at, request.roles[0].whole_at)
    away = ~excluded_nodes(occupancy, request.apart) if request.apart else None
    if not tier:
        return [away]
    domain_of_node = fabric.domain_of_node[tier]
    on_tori = [domain_of_node[pieces.node_at].ravel() for pieces in pieces_of(fabric)]
    inside = [domain_of_node == domain for domain in np.unique(np.concatenate(on_tori)).tolist()]
    return [nodes if away is None else nodes & away for nodes in inside]


def _starts(
    occupancy: Occupancy,
    pieces: Pieces,
    layout: Layout,
    fits: list[BoolArray],
    rule: BlindRule | None,
) -> tuple[tuple[int, ...], ...]:
    """Return the starts of the slice; () where it has no place."""
    joined = pieces.any_torus.cubes_joined(layout.shape)
    if joined:
        return min((_cubes(pieces, fit, joined) for fit in fits), key=lambda c: (not c, c))
    cell = cell_of(pieces, layout.shape)
    places = boxes_within(pieces, fits[0], layout.shape, cell)
    for fit in fits[1:]:
        places = places | boxes_within(pieces, fit, layout.shape, cell)
    if rule is not None and places.any():
        left = np.flatnonzero(places)
        return (_at(places, left[rule.position(len(left))]),)
    return (_least_overlap(occupancy, pieces, layout, places),) if places.any() else ()


def has_place(pieces: Pieces, layout: Layout, fit: BoolArray) -> bool:
    """Whether a slice fits somewhere in the cells that have room for its members."""
    joined = pieces.any_torus.cubes_joined(layout.shape)
    if joined:
        return bool(_cubes(pieces, fit, joined))
    cell = cell_of(pieces, layout.shape)
    return bool(boxes_within(pieces, fit, layout.shape, cell).any())


def _cubes(pieces: Pieces, fit: BoolArray, joined: int) -> tuple[tuple[int, ...], ...]:
    """The first free cubes of the torus with the fewest that are enough; () where none has enough."""
    whole = fit.reshape(len(fit), -1).all(axis=1)
    free_cubes = np.bincount(pieces.torus_of_piece[whole], minlength=len(pieces.tori))
    enough = np.flatnonzero(free_cubes >= joined)
    if not len(enough):
        return ()
    torus = enough[np.argmin(free_cubes[enough])]
    chosen = np.flatnonzero(whole & (pieces.torus_of_piece == torus))[:joined]
    corner = (0,) * (fit.ndim - 1)
    return tuple((piece, *corner) for piece in chosen.tolist())


def _least_overlap(
    occupancy: Occupancy, pieces: Pieces, layout: Layout, places: BoolArray
) -> tuple[int, ...]:
    """Of the places where a box may start, the one that overlaps fewest free boxes of the ladder."""
    left = np.flatnonzero(places)
    cell = cell_of(pieces, layout.shape)
    by = in_cells(layout.shape, cell)
    assert by is not None
    if len(left) > 1:
        free = free_cells(occupancy, pieces, cell)
        for shape, sizes in ladder(pieces, cell):
            starts = boxes_within(pieces, free, shape, cell)
            if starts.any():
                met = boxes_met(starts, sizes, by).ravel()[left]
                left = left[met == met.min()]
                if len(left) == 1:
                    break
    return _at(places, left[0])


def _at(places: BoolArray, number: int) -> tuple[int, ...]:
    return tuple(int(at) for at in np.unravel_index(number, places.shape))


@lru_cache(maxsize=KEPT_LADDERS)
def ladder(pieces: Pieces, cell: Shape) -> tuple[tuple[Shape, Shape], ...]:
    """Legal shapes of falling size and the same in cells, the most compact of each size that is made of whole cells."""
    rungs: list[tuple[Shape, Shape]] = []
    for size in sorted(set(_legal_sizes(pieces)), reverse=True):
        if not rungs or 2 * size <= prod(rungs[-1][0]):
            made = ((shape, in_cells(shape, cell)) for shape in pieces.any_torus.shapes(size))
            rung = next(((shape, cells) for shape, cells in made if cells is not None), None)
            rungs += [rung] if rung else []
    return tuple(rungs)


def _legal_sizes(pieces: Pieces) -> Iterator[int]:
    """Sizes that a rung may have, in GPUs, some of them twice."""
    rule, piece = pieces.any_torus.rule, prod(pieces.any_torus.piece)
    if rule is None:
        yield piece
    else:
        yield from (prod(shape) for shape in rule.listed if prod(shape) <= piece)
    if rule is None or rule.cube:
        size = prod(rule.cube) if rule else 1
        while size <= piece:
            yield size
            size *= 2
