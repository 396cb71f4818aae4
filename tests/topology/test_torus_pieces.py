"""Tori as arrays: boxes counted all at once, against twins that look at one box after the other."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Node, Torus
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.tori import Box, TorusIndex
from gantree.topology.fabric.torus_pieces import (
    Pieces,
    boxes_met,
    boxes_within,
    cell_of,
    in_cells,
    pieces_of,
    runs,
    totals,
)
from support.examples import examples


@st.composite
def sites(draw: st.DrawFn) -> Fabric:
    """One or two equal tori, of cubes or not."""
    axes = draw(st.integers(1, 3))
    host = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    cube = tuple(each * draw(st.integers(1, 3)) for each in host)
    counts = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    dims = tuple(size * count for size, count in zip(cube, counts, strict=True))
    wrap = tuple(draw(st.booleans()) for _ in range(axes))
    hosts = prod(dims) // prod(host)
    tori = []
    for name in ("t", "u")[: draw(st.integers(1, 2))]:
        names = tuple(f"{name}{at}" for at in range(hosts))
        tori.append(Torus(name, dims, host, names, wrap, cube=cube))
    if draw(st.booleans()):
        tori = [replace(torus, cube=()) for torus in tori]
    nodes = tuple(Node(name, "m") for torus in tori for name in torus.nodes)
    machines = {"m": Machine("m", prod(host))}
    return Fabric.build(Cluster("c", ("node",), machines, nodes, tori=tuple(tori)))


def boxes_in_order(pieces: Pieces, shape: tuple[int, ...]) -> list[tuple[TorusIndex, Box]]:
    return [(index, box) for index in pieces.tori for box in index.boxes(shape)]


def cells_of_box(pieces: Pieces, index: TorusIndex, box: Box, cell: tuple[int, ...]) -> set[object]:
    """(torus, cell of the whole torus) that a box covers."""
    walk = product(*(range(size) for size in box.shape))
    piece = index.piece
    corner = [at // side * side for at, side in zip(box.origin, piece, strict=True)]
    return {
        (
            index.torus.name,
            *(
                (low + (at - low + step) % side) // c
                for low, at, step, side, c in zip(
                    corner, box.origin, steps, piece, cell, strict=True
                )
            ),
        )
        for steps in walk
    }


def torus_cells(pieces: Pieces, values: np.ndarray, cell: tuple[int, ...]) -> set[object]:
    """The cells that are True, named as `cells_of_box` does."""
    named: set[object] = set()
    any_torus = pieces.any_torus
    pieces_along = [d // p for d, p in zip(any_torus.torus.dims, any_torus.piece, strict=True)]
    for piece, *at in np.argwhere(values).tolist():
        torus, number = divmod(piece, prod(pieces_along))
        block = np.unravel_index(number, pieces_along)
        inside = [p // c for p, c in zip(any_torus.piece, cell, strict=True)]
        whole = (int(b) * n + a for b, n, a in zip(block, inside, at, strict=True))
        named.add((pieces.tori[torus].torus.name, *whole))
    return named


@st.composite
def questions(draw: st.DrawFn) -> tuple[Pieces, tuple[int, ...], np.ndarray]:
    """Pieces, a legal shape of one piece, and cells of its size that are True or not."""
    (pieces,) = pieces_of(draw(sites()))
    any_torus = pieces.any_torus
    every = product(*(range(1, size + 1) for size in any_torus.piece))
    shape = draw(st.sampled_from([s for s in every if any_torus.is_legal(s)]))
    cell = cell_of(pieces, shape)
    sides = [size // c for size, c in zip(any_torus.piece, cell, strict=True)]
    count = len(pieces.node_at) * prod(sides)
    bits = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    return pieces, shape, np.array(bits).reshape(len(pieces.node_at), *sides) > 0


@settings(max_examples=examples(80), deadline=None)
@given(questions())
def test_boxes_within_cells_are_those_all_of_whose_cells_are_true(
    question: tuple[Pieces, tuple[int, ...], np.ndarray],
) -> None:
    pieces, shape, cells = question
    cell = cell_of(pieces, shape)
    true = torus_cells(pieces, cells, cell)
    expected = [
        cells_of_box(pieces, index, box, cell) <= true
        for index, box in boxes_in_order(pieces, shape)
    ]
    within = boxes_within(pieces, cells, shape, cell)
    legal = boxes_within(pieces, np.ones_like(cells), shape, cell)
    assert within[legal].tolist() == expected
    assert not within[~legal].any()


@settings(max_examples=examples(80), deadline=None)
@given(questions(), st.data())
def test_boxes_met_counts_the_boxes_that_share_a_cell(
    question: tuple[Pieces, tuple[int, ...], np.ndarray], data: st.DataObject
) -> None:
    pieces, by, cells = question
    cell = cell_of(pieces, by)
    every = product(*(range(1, size + 1) for size in pieces.any_torus.piece))
    shape = data.draw(
        st.sampled_from([s for s in every if pieces.any_torus.is_legal(s) and in_cells(s, cell)])
    )
    sizes, own = in_cells(shape, cell), in_cells(by, cell)
    assert sizes and own
    places = boxes_within(pieces, cells, shape, cell)
    true = torus_cells(pieces, cells, cell)
    free = [
        covered
        for index, box in boxes_in_order(pieces, shape)
        if (covered := cells_of_box(pieces, index, box, cell)) <= true
    ]
    expected = [
        sum(bool(covered & cells_of_box(pieces, index, box, cell)) for covered in free)
        for index, box in boxes_in_order(pieces, by)
    ]
    legal = boxes_within(pieces, np.ones_like(cells), by, cell)
    assert boxes_met(places, sizes, own)[legal].tolist() == expected


@given(st.data())
def test_windows_go_on_over_the_seam(data: st.DataObject) -> None:
    sides = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    sizes = tuple(data.draw(st.integers(1, side)) for side in sides)
    bits = data.draw(st.lists(st.booleans(), min_size=prod(sides), max_size=prod(sides)))
    cells = np.array(bits).reshape(1, *sides)
    for start in product(*map(range, sides)):
        axes = [
            [(at + step) % side for step in range(size)]
            for at, size, side in zip(start, sizes, sides, strict=True)
        ]
        window = cells[0][np.ix_(*axes)]
        assert totals(cells, sizes)[(0, *start)] == window.sum()
        assert runs(cells, sizes)[(0, *start)] == window.all()


def test_like_tori_stand_side_by_side_and_others_apart() -> None:
    def torus(name: str, dims: tuple[int, ...]) -> Torus:
        return Torus(name, dims, (1,), tuple(f"{name}{at}" for at in range(dims[0])), (True,))

    tori = (torus("a", (3,)), torus("b", (2,)), torus("c", (3,)))
    nodes = tuple(Node(name, "m") for torus in tori for name in torus.nodes)
    made = Cluster("c", ("node",), {"m": Machine("m", 1)}, nodes, tori=tori)
    first, second = pieces_of(Fabric.build(made))
    assert [index.torus.name for index in first.tori] == ["a", "c"]
    assert first.node_at.tolist() == [[0, 1, 2], [5, 6, 7]]
    assert second.node_at.tolist() == [[3, 4]]
    assert first.points is False


def test_a_torus_is_cut_into_its_cubes_in_row_major_order() -> None:
    names = tuple(f"n{at}" for at in range(8))
    torus = Torus("t", (4, 4), (2, 1), names, (True, True), cube=(2, 2))
    nodes = tuple(Node(name, "m") for name in names)
    (pieces,) = pieces_of(
        Fabric.build(Cluster("c", ("node",), {"m": Machine("m", 2)}, nodes, tori=(torus,)))
    )
    assert pieces.node_at.tolist() == [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]
    assert pieces.torus_of_piece.tolist() == [0, 0, 0, 0]
