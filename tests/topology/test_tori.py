"""Tori: coordinates, distances over the seam, and boxes, against twins that walk the grid point by point."""

from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Node, Torus
from gantree.model.errors import BadInput
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.tori import Box, Point, TorusIndex, tori_of
from support.examples import examples


def fabric(*tori: Torus, nodes: int = 0, gpu: str | None = None) -> Fabric:
    gpus = max(prod(torus.host) for torus in tori)
    names = list(dict.fromkeys(name for torus in tori for name in torus.nodes))
    names += [f"beside{i}" for i in range(nodes)]
    members = tuple(Node(name, "m") for name in sorted(names))
    return Fabric.build(Cluster("c", ("node",), {"m": Machine("m", gpus, gpu)}, members, tori=tori))


def torus(
    dims: tuple[int, ...],
    host: tuple[int, ...] = (),
    wrap: tuple[bool, ...] = (),
    slices: tuple[tuple[int, ...], ...] = (),
    cube: tuple[int, ...] = (),
) -> Torus:
    host = host or (1,) * len(dims)
    count = prod(dims) // prod(host)
    nodes = tuple(f"t{node}" for node in range(count))
    return Torus("t", dims, host, nodes, wrap or (True,) * len(dims), slices, cube)


def index(made: Torus, gpu: str | None = None) -> TorusIndex:
    (only,) = tori_of(fabric(made, gpu=gpu))
    return only


@st.composite
def made_tori(draw: st.DrawFn) -> Torus:
    axes = draw(st.integers(1, 3))
    host = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    dims = tuple(each * draw(st.integers(1, 3)) for each in host)
    wrap = tuple(draw(st.booleans()) for _ in range(axes))
    if draw(st.booleans()):
        counts = tuple(draw(st.integers(1, 2)) for _ in range(axes))
        cubes = tuple(size * count for size, count in zip(dims, counts, strict=True))
        return torus(cubes, host, wrap, cube=dims)
    return torus(dims, host, wrap)


def all_points(dims: tuple[int, ...]) -> list[Point]:
    return list(product(*(range(size) for size in dims)))


def test_nodes_stand_in_row_major_order_and_gpus_inside_them_too() -> None:
    built = index(torus((4, 4, 2), (2, 2, 1)))
    by_name = {node.name: at for at, node in enumerate(fabric(built.torus).nodes)}
    assert [built.node_point(by_name[f"t{n}"]) for n in range(5)] == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0),
    ]  # fmt: skip
    assert [built.gpu_point(by_name["t2"], gpu) for gpu in range(4)] == [
        (0, 2, 0), (0, 3, 0), (1, 2, 0), (1, 3, 0),
    ]  # fmt: skip


def test_a_node_that_is_one_point_holds_whatever_it_holds() -> None:
    made = torus((2, 2))
    nodes = tuple(Node(name, "m") for name in made.nodes)
    (built,) = tori_of(
        Fabric.build(Cluster("c", ("node",), {"m": Machine("m", 8)}, nodes, tori=(made,)))
    )
    assert built.gpu_point(3, 7) == (1, 1)


@given(made_tori())
def test_every_gpu_has_a_point_of_its_own_and_the_way_back(made: Torus) -> None:
    built = index(made)
    points = {
        built.gpu_point(node, gpu): (node, gpu)
        for node in built.position_of_node
        for gpu in range(prod(made.host))
    }
    assert sorted(points) == all_points(made.dims)
    if prod(made.host) > 1:
        assert all(built.gpu_at(point) == place for point, place in points.items())


def walked(made: Torus, start: Point) -> dict[Point, int]:
    """Distances from a point, link by link."""
    found, edge = {start: 0}, [start]
    while edge:
        reached = []
        for point in edge:
            for axis, step in product(range(len(made.dims)), (-1, 1)):
                to = list(point)
                to[axis] += step
                if made.wrap[axis]:
                    to[axis] %= made.dims[axis]
                if 0 <= to[axis] < made.dims[axis] and tuple(to) not in found:
                    found[tuple(to)] = found[point] + 1
                    reached.append(tuple(to))
        edge = reached
    return found


@settings(max_examples=examples(40))
@given(made_tori(), st.data())
def test_distances_are_those_of_a_walk_along_the_links(made: Torus, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(all_points(made.dims)))
    built = index(made)
    for point, links in walked(made, start).items():
        assert built.distance(start, point) == built.distance(point, start) == links


def plain_boxes(made: Torus, shape: tuple[int, ...]) -> set[Box]:
    """Every origin is tried: inside its piece, over a seam only where it closes, and no host cut off its grid."""
    piece = made.cube or made.dims
    wrap = made.wrap if not made.cube else (False,) * len(made.dims)
    found = set()
    for origin in all_points(made.dims):
        right = True
        inside = tuple(at % most for at, most in zip(origin, piece, strict=True))
        for first, size, most, host, wraps in zip(
            inside, shape, piece, made.host, wrap, strict=True
        ):
            hosts = {at % most // host for at in range(first, first + size)}
            whole = size % host == 0 and first % host == 0
            part = host % size == 0 and first % size == 0 and len(hosts) == 1
            right &= whole or part or (size == most and first == 0)
            right &= (first + size <= most or (wraps and whole)) and size <= most
            right &= size < most or first == 0
        if right:
            found.add(Box(origin, shape))
    return found


@settings(max_examples=examples(60))
@given(made_tori(), st.data())
def test_boxes_are_exactly_those_of_a_walk_over_all_origins(
    made: Torus, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.integers(1, size + 1)) for size in made.dims)
    built = index(made)
    boxes = list(built.boxes(shape))
    assert len(set(boxes)) == len(boxes)
    assert set(boxes) == plain_boxes(made, shape)
    joined = made.cube and all(s % c == 0 for s, c in zip(shape, made.cube, strict=True))
    fits = joined and prod(shape) <= prod(made.dims)
    assert built.is_legal(shape) == (bool(boxes) or bool(fits))
    for box in boxes:
        points = list(built.points(box))
        assert len(set(points)) == prod(shape)


def test_a_box_as_long_as_its_axis_has_one_place_and_a_ring() -> None:
    built = index(torus((4, 4), wrap=(True, False)))
    assert [box.origin for box in built.boxes((4, 1))] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert [box.origin for box in built.boxes((2, 4))] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert built.closed_axes((4, 4)) == (True, False)
    assert built.closed_axes((2, 4)) == (False, False)
    assert list(built.points(Box((3, 0), (2, 1)))) == [(3, 0), (0, 0)]


def test_shapes_of_a_number_are_compact_first_and_only_those_that_are_sold() -> None:
    free = index(torus((4, 4, 4), (2, 2, 1)))
    assert free.shapes(8)[:3] == ((2, 2, 2), (2, 4, 1), (4, 2, 1))
    assert set(free.shapes(8)[3:]) == {(1, 2, 4), (1, 4, 2), (2, 1, 4), (4, 1, 2)}
    assert free.shapes(1) == ((1, 1, 1),)
    assert free.shapes(3) == ((1, 1, 3),)
    assert free.shapes(5) == free.shapes(0) == free.shapes(65) == ()
    sold = index(torus((4, 4, 4), (2, 2, 1), slices=((2, 2, 1), (2, 2, 2), (4, 2, 1))))
    assert sold.shapes(8) == ((2, 2, 2), (4, 2, 1))
    assert sold.shapes(16) == ()
    assert list(sold.boxes((2, 4, 1))) == []


def test_a_v4_cube_is_read_by_hosts_of_a_tray() -> None:
    cube = index(torus((4, 4, 4), (2, 2, 1)))
    assert len(list(cube.boxes((2, 2, 1)))) == 2 * 2 * 4
    assert len(list(cube.boxes((2, 2, 2)))) == 2 * 2 * 4
    assert len(list(cube.boxes((4, 4, 4)))) == 1
    assert cube.distance((0, 0, 0), (3, 3, 2)) == 1 + 1 + 2


def test_joined_cubes_close_every_axis_and_may_stand_in_a_row_longer_than_the_torus() -> None:
    pod = index(torus((8, 8, 8), (2, 2, 1), cube=(4, 4, 4)))
    assert [pod.cubes_joined(shape) for shape in ((4, 4, 4), (4, 4, 8), (8, 8, 8))] == [1, 2, 8]
    assert pod.cubes_joined((2, 4, 4)) == 0
    assert pod.is_legal((4, 4, 32)) and not pod.is_legal((4, 4, 36))
    assert pod.closed_axes((4, 4, 32)) == (True, True, True)
    assert pod.closed_axes((2, 4, 4)) == (False, False, False)
    assert not pod.is_legal((2, 4, 8)), "a part of two cubes"
    assert len(list(pod.boxes((4, 4, 4)))) == 8
    assert list(pod.boxes((4, 4, 8))) == []
    assert pod.shapes(128) == ((4, 4, 8), (4, 8, 4), (8, 4, 4))


POD = torus((16, 16), (2, 4))
TABLE_OF_V5E = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))


@pytest.mark.parametrize("gpu", ["TPUV5E-16GB", "TPUV6E-32GB"])
def test_flat_pods_are_cut_as_their_tables_say(gpu: str) -> None:
    built = index(POD, gpu)
    assert tuple(built.shapes(prod(shape)) for shape in TABLE_OF_V5E) == tuple(
        (shape,) for shape in TABLE_OF_V5E
    )
    assert not built.is_legal((8, 4)) and not built.is_legal((2, 8))
    assert built.closed_axes((8, 16)) == (False, True)
    quarters = {(box.origin[0] % 2, box.origin[1] % 4) for box in built.boxes((2, 2))}
    assert quarters == {(0, 0), (0, 2)}, "a part of a host starts where parts of its size do"


@pytest.mark.parametrize(
    ("gpu", "largest", "too_large"),
    [
        ("TPUV4-32GB", (16, 16, 16), (16, 16, 20)),
        ("TPUV5P-95GB", (16, 16, 24), (16, 20, 20)),
        ("TPU7X-192GB", (16, 16, 36), (16, 20, 32)),
    ],
)
def test_pods_of_cubes_are_cut_below_one_cube_by_table_and_above_in_rising_multiples(
    gpu: str, largest: tuple[int, ...], too_large: tuple[int, ...]
) -> None:
    pod = index(torus((16, 24, 28), (2, 2, 1), cube=(4, 4, 4)), gpu)
    small = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8))
    assert all(pod.shapes(prod(shape)) == (shape,) for shape in small)
    assert pod.shapes(256) == ((4, 8, 8), (4, 4, 16))
    assert pod.is_legal((8, 12, 16)) and not pod.is_legal((12, 8, 16))
    assert not pod.is_legal((4, 4, 6)) and not pod.is_legal((1, 2, 1))
    assert pod.is_legal(largest) and not pod.is_legal(too_large)


def test_what_the_site_names_and_mixed_nodes_take_the_place_of_what_is_sold() -> None:
    named = index(replace(POD, slices=((8, 4),)), "TPUV5E-16GB")
    assert named.is_legal((8, 4)) and not named.is_legal((4, 8))
    nodes = tuple(Node(name, "a" if at else "b") for at, name in enumerate(POD.nodes))
    machines = {"a": Machine("a", 8, "TPUV5E-16GB"), "b": Machine("b", 8, "H100-80GB")}
    (mixed,) = tori_of(Fabric.build(Cluster("c", ("node",), machines, nodes, tori=(POD,))))
    assert mixed.is_legal((2, 12))


GOOD = torus((4, 2), (2, 1))
WRONG = {
    "4 nodes on 8 points": replace(GOOD, dims=(8, 2)),
    "hosts of 3": replace(GOOD, host=(3, 1)),
    "dims has 2 axes": replace(GOOD, wrap=(True,)),
    "cubes of 3 along an axis of 4 GPUs": replace(GOOD, cube=(3, 1)),
    "cubes of 1 along an axis of 4 GPUs, hosts of 2": replace(GOOD, cube=(1, 1)),
    "3 nodes on 4 points|4 nodes on 4 points": replace(GOOD, nodes=("t0", "t1", "t2", "t2")),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_torus_that_contradicts_itself_is_bad_input(words: str) -> None:
    with pytest.raises(BadInput, match=words):
        tori_of(fabric(WRONG[words]))


def test_a_node_stands_in_one_torus_that_the_fabric_has() -> None:
    other = replace(GOOD, name="u", dims=(2, 1), nodes=("t0",))
    with pytest.raises(BadInput, match="t0 is also in torus t"):
        tori_of(fabric(GOOD, other))
    (built,) = tori_of(fabric(GOOD, nodes=1))
    with pytest.raises(BadInput, match="is not in it"):
        built.node_point(0)
    with pytest.raises(BadInput, match="no GPU 2"):
        built.gpu_point(1, 2)
