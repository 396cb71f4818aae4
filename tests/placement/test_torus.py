"""Slices of tori against a plain twin that looks at one box after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.request.blind_rule import BlindRule
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.torus.choice import ladder
from gantree.placement.torus.largest import largest_window
from gantree.placement.torus.room import chips_free
from gantree.placement.torus.torus import find_on_torus, fits_on_torus, place_on_torus
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.tori import Box, Point, TorusIndex, tori_of
from gantree.topology.fabric.torus_pieces import cell_of, pieces_of
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples
from support.tori import job_on_box, patched, site_of, torus

Sides = tuple[int, ...]


# ----- the plain twin


@dataclass(frozen=True)
class Twin:
    """What any correct answer is: the points of the slice in row-major order, and what it leaves, rung by rung."""

    points: list[tuple[int, int]]
    left: tuple[int, ...]


def usable_free(occupancy: Occupancy, index: TorusIndex, point: Point) -> bool:
    node, gpu = index.gpu_at(point)
    return bool(occupancy.usable_node[node]) and bool(occupancy.free_mask_of_node[node] >> gpu & 1)


def slices_free(occupancy: Occupancy, shape: Sides) -> Iterator[list[tuple[int, int]]]:
    """Every free slice of a shape as (node, GPU) in its own row-major order; of joined cubes one for each torus."""
    for index in tori_of(occupancy.fabric):
        joined = index.cubes_joined(shape)
        if not index.is_legal(shape):
            continue
        if not joined:
            for box in index.boxes(shape):
                points = list(index.points(box))
                if all(usable_free(occupancy, index, point) for point in points):
                    yield [index.gpu_at(point) for point in points]
            continue
        cubes = [
            box
            for box in index.boxes(index.torus.cube)
            if all(usable_free(occupancy, index, point) for point in index.points(box))
        ]
        if len(cubes) >= joined:
            yield list(joined_points(index, cubes[:joined], shape))


def joined_points(index: TorusIndex, cubes: list[Box], shape: Sides) -> Iterator[tuple[int, int]]:
    cube = index.torus.cube
    slots = list(product(*(range(size // side) for size, side in zip(shape, cube, strict=True))))
    for point in product(*map(range, shape)):
        slot = tuple(at // side for at, side in zip(point, cube, strict=True))
        corner = cubes[slots.index(slot)].origin
        inside = (at % side for at, side in zip(point, cube, strict=True))
        yield index.gpu_at(tuple(a + b for a, b in zip(corner, inside, strict=True)))


def places_left(
    occupancy: Occupancy, taken: list[tuple[int, int]], rungs: list[Sides]
) -> tuple[int, ...]:
    """How many boxes of each rung are free once these GPUs are taken."""
    gone = set(taken)
    free = [
        [
            not gone & {index.gpu_at(point) for point in index.points(box)}
            and all(usable_free(occupancy, index, point) for point in index.points(box))
            for index in tori_of(occupancy.fabric)
            for box in index.boxes(rung)
        ]
        for rung in rungs
    ]
    return tuple(sum(each) for each in free)


def twin(occupancy: Occupancy, asked: Job) -> Twin | None:
    """The best slice, found by looking at every box of every shape; on a site whose tori are alike."""
    (pieces,) = pieces_of(occupancy.fabric)
    box, each = asked.topology.box, asked.roles[0].shape.gpus
    for shape in [box] if box else pieces.any_torus.shapes(asked.gpus):
        if prod(min(s, h) for s, h in zip(shape, pieces.host, strict=True)) % each:
            continue
        found = list(slices_free(occupancy, shape))
        if found and pieces.any_torus.cubes_joined(shape):
            return Twin(fewest_free_cubes(occupancy, found), ())
        if found:
            rungs = [rung for rung, _ in ladder(pieces, cell_of(pieces, shape))]
            left = [places_left(occupancy, points, rungs) for points in found]
            return Twin(found[left.index(max(left))], max(left))
    return None


def fewest_free_cubes(
    occupancy: Occupancy, found: list[list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    def cubes(points: list[tuple[int, int]]) -> int:
        (index,) = (i for i in tori_of(occupancy.fabric) if points[0][0] in i.position_of_node)
        return sum(
            all(usable_free(occupancy, index, point) for point in index.points(box))
            for box in index.boxes(index.torus.cube)
        )

    return min(found, key=cubes)


@st.composite
def used_sites(draw: st.DrawFn) -> Occupancy:
    """One or two equal tori, of cubes or not, some GPUs of which are held and some nodes not usable."""
    axes = draw(st.integers(1, 3))
    host = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    cube = tuple(each * draw(st.integers(1, 3 if axes < 3 else 2)) for each in host)
    counts = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    wrap = [draw(st.booleans()) for _ in range(axes)]
    dims = tuple(size * count for size, count in zip(cube, counts, strict=True))
    joined = draw(st.booleans())
    tori = [
        torus(name, dims, host, wrap, cube if joined else ())
        for name in ("t", "u")[: draw(st.integers(1, 2))]
    ]
    occupancy = Occupancy(site_of(*tori))
    fullness = draw(st.integers(2, 6))
    for number, node in enumerate(occupancy.fabric.nodes):
        held = draw(st.integers(1, fullness))
        if held == 1:
            occupancy.mark(node.name, draw(st.booleans()))
        elif held == 2:
            gpus = draw(st.sets(st.integers(0, prod(host) - 1), min_size=1))
            occupancy.take(f"o{number}", [MemberPlacement("w", 0, node.name, tuple(sorted(gpus)))])
    return occupancy


@st.composite
def questions(draw: st.DrawFn) -> tuple[Occupancy, Job]:
    """A used site and a job whose box is legal there, or that takes any box."""
    occupancy = draw(used_sites())
    (pieces,) = pieces_of(occupancy.fabric)
    any_torus = pieces.any_torus
    every = product(*(range(1, size + 1) for size in any_torus.torus.dims))
    shape = draw(st.sampled_from([s for s in every if any_torus.is_legal(s)]))
    on_host = prod(min(s, h) for s, h in zip(shape, any_torus.torus.host, strict=True))
    each = draw(st.sampled_from([g for g in range(1, on_host + 1) if on_host % g == 0]))
    return occupancy, job_on_box(draw(st.sampled_from([shape, ()])), prod(shape) // each, each)


@settings(max_examples=examples(60), deadline=None)
@given(questions())
def test_a_slice_is_free_legal_in_row_major_order_and_spoils_least(
    question: tuple[Occupancy, Job],
) -> None:
    occupancy, asked = question
    expected, found = twin(occupancy, asked), find_on_torus(occupancy, asked)
    assert (found is None) == (expected is None)
    assert fits_on_torus(occupancy, asked) == (expected is not None)
    if found is None or expected is None:
        return
    assert problems_of(occupancy, asked, found) == []
    index_of_node = occupancy.fabric.index_of_node
    held = [
        [expected.points.index((index_of_node[member.node], gpu)) for gpu in member.gpus]
        for member in found.members
    ]
    assert sorted(place for member in held for place in member) == list(range(asked.gpus))
    assert held == sorted(held), "ranks are in row-major order of the slice"
    occupancy.take("g", found.members)
    occupancy.check()


@settings(max_examples=examples(60), deadline=None)
@given(questions(), st.sampled_from(["first-fit", "best-fit", "random"]))
def test_a_blind_rule_takes_a_slice_exactly_if_there_is_one(
    question: tuple[Occupancy, Job], placement: Literal["first-fit", "best-fit", "random"]
) -> None:
    occupancy, asked = question
    rule = BlindRule(PlacementPreferences(placement=placement), asked)
    found = find_on_torus(occupancy, asked, rule)
    assert (found is not None) == fits_on_torus(occupancy, asked)
    if found is not None:
        assert problems_of(occupancy, asked, found) == []


@settings(max_examples=examples(100), deadline=None)
@given(questions())
def test_a_refusal_is_true_and_what_it_offers_fits(question: tuple[Occupancy, Job]) -> None:
    occupancy, asked = question
    answer = place_on_torus(occupancy, asked)
    if isinstance(answer, Placement):
        return
    never = twin(occupancy.emptied(), asked) is None
    assert answer.never == never
    free = sum(
        usable_free(occupancy, index, point)
        for index in tori_of(occupancy.fabric)
        for point in product(*map(range, index.torus.dims))
    )
    if not never:
        assert (answer.gate is Gate.ROOM) == (free < asked.gpus)
    for relaxation in answer.would_fit_if:
        smaller = patched(asked, relaxation.patch)
        placement = find_on_torus(occupancy, smaller)
        assert placement is not None and problems_of(occupancy, smaller, placement) == []
    assert largest_offered(asked, answer) == largest_twin(occupancy, asked)


def largest_offered(asked: Job, refused: Refused) -> int:
    """Members of the smaller gang that a refusal offers; 0 for none."""
    offers = [dict(relaxation.patch).get("members", 0) for relaxation in refused.would_fit_if]
    return max((offer for offer in offers if isinstance(offer, int)), default=0)


def largest_twin(occupancy: Occupancy, asked: Job) -> int:
    """The most members, fewer than asked, for which any box is free."""
    for members in range(asked.roles[0].members - 1, 0, -1):
        if twin(occupancy, patched(asked, (("members", members), ("topology.box", ())))):
            return members
    return 0


@settings(max_examples=examples(60), deadline=None)
@given(used_sites(), st.data())
def test_the_index_of_free_gpus_follows_the_occupancy(
    occupancy: Occupancy, data: st.DataObject
) -> None:
    (pieces,) = pieces_of(occupancy.fabric)
    chips_free(occupancy, pieces)
    for number in range(data.draw(st.integers(1, 3))):
        found = find_on_torus(occupancy, job_on_box((), 1, name=f"j{number}"))
        if found is not None:
            occupancy.take(f"j{number}", found.members)
            if data.draw(st.booleans()):
                occupancy.give_back(f"j{number}")
        occupancy.check()


@given(st.data())
def test_the_largest_window_is_that_of_a_walk_over_all(data: st.DataObject) -> None:
    sides = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    bits = data.draw(st.lists(st.integers(0, 4), min_size=prod(sides), max_size=prod(sides)))
    cells, most = np.array(bits).reshape(1, *sides) > 0, data.draw(st.integers(1, prod(sides)))
    found = [
        prod(sizes)
        for sizes in product(*(range(1, side + 1) for side in sides))
        for start in product(*map(range, sides))
        if prod(sizes) <= most
        and all(
            cells[(0, *((a + b) % n for a, b, n in zip(start, step, sides, strict=True)))]
            for step in product(*map(range, sizes))
        )
    ]
    count, sizes = largest_window(cells, sides, most)
    assert count == max(found, default=0)
    assert prod(sizes) == count or not count
