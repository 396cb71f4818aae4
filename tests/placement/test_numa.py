"""Cores, memory and bandwidth on NUMA nodes: tables, members one after the other, and a twin that counts by trying."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Nic, Node
from gantree.model.jobs import Shape
from gantree.model.placements import MemberPlacement, NumaPart
from gantree.placement.machine.devices import choose_gpus, choose_nics
from gantree.placement.machine.numa import (
    ANY_NUMBER,
    gpus_within_bandwidth,
    members_by_bandwidth,
    nics_with_room,
    numa_shortages,
    split_numa,
)
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine, plain
from gantree.topology.hardware.masks import gpus_of, mask_of
from gantree.topology.hardware.numa import NumaUse, amounts_of, numa_layout
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

H100 = replace(machine("dgx-h100"), numa_memory_GBps=400)
"""112 CPUs, 1024 GiB and 400 GB/s on each of two NUMA nodes, with GPUs and NICs 0-3 and 4-7."""
A100 = replace(machine("dgx-a100"), numa_memory_GBps=50)
"""64 CPUs, 512 GiB and 50 GB/s each: GPUs 2, 3 on NUMA node 1, 0, 1 on 3, 6, 7 on 5, 4, 5 on 7."""
ONE = replace(plain("one", 4), numa_memory_GBps=100)

Held = dict[int, tuple[float, float, float]]
"""NUMA node -> CPUs, GiB, GB/s."""


def used(model: Machine, held: Held) -> NumaUse:
    return NumaUse.none(model).changed(model, [NumaPart(n, *h) for n, h in held.items()], +1)


def as_held(parts: Sequence[NumaPart]) -> dict[int | None, tuple[float, float, float]]:
    return {part.numa: (part.cpus, part.memory_GiB, part.memory_GBps) for part in parts}


@pytest.mark.parametrize(
    ("model", "gpus", "asked", "held", "expected"),
    [
        # on the NUMA nodes of its GPUs, in proportion
        (H100, (1, 2), (8, 64, 0), {}, {0: (8, 64, 0)}),
        (H100, (4, 5, 6, 7), (8, 64, 10), {}, {1: (8, 64, 10)}),
        (H100, tuple(range(8)), (64, 512, 0), {}, {0: (32, 256, 0), 1: (32, 256, 0)}),
        (H100, (2, 3, 4), (6, 30, 60), {}, {0: (4, 20, 40), 1: (2, 10, 20)}),
        (A100, (0, 1, 6), (0, 0, 30), {}, {3: (0, 0, 20), 5: (0, 0, 10)}),
        (A100, (0, 1, 6), (0, 0, 20), {}, {3: (0, 0, 13.333333), 5: (0, 0, 6.666666)}),  # never up
        # whole CPUs stay whole, parts of CPUs do not
        (H100, (2, 3, 4), (7, 0, 0), {}, {0: (5, 0, 0), 1: (2, 0, 0)}),
        (H100, (3, 4), (0.5, 0, 0), {}, {0: (0.25, 0, 0), 1: (0.25, 0, 0)}),
        # a full NUMA node spills to the member's others, then to the next by number
        (H100, (0,), (20, 10, 0), {0: (100, 0, 0)}, {0: (12, 10, 0), 1: (8, 0, 0)}),
        (H100, (0,), (20, 10, 0), {0: (99.5, 1024, 0)}, {0: (12, 0, 0), 1: (8, 10, 0)}),
        (H100, (0,), (8, 10, 0), {0: (0, 1020, 0)}, {0: (8, 4, 0), 1: (0, 6, 0)}),
        (H100, (0, 4), (40, 0, 0), {0: (100, 0, 0)}, {0: (12, 0, 0), 1: (28, 0, 0)}),
        (A100, (0,), (10, 0, 0), {3: (64, 0, 0)}, {1: (10, 0, 0)}),
        (A100, (4,), (10, 0, 0), {7: (64, 0, 0)}, {5: (10, 0, 0)}),
        (A100, (4, 0), (20, 0, 0), {7: (64, 0, 0)}, {3: (20, 0, 0)}),
        (A100, (4,), (70, 0, 0), {7: (62, 0, 0), 5: (4, 0, 0)}, {7: (2, 0, 0), 5: (60, 0, 0), 3: (8, 0, 0)}),
        # nothing is asked, or nothing is known
        (H100, (0,), (0, 0, 0), {}, {}),
        (machine("mi250x-8"), (0, 1), (8, 64, 0), {}, {}),
        (plain("m", 4), (0, 1), (8, 64, 0), {}, {}),
        (ONE, (0, 1), (8, 64, 0), {}, {}),
        (ONE, (0, 1), (8, 64, 60), {}, {None: (8, 64, 60)}),
        (machine("dgx-h100"), (0,), (8, 64, 999), {}, {0: (8, 64, 999)}),  # bandwidth not counted
    ],
)  # fmt: skip
def test_a_member_gets_its_cores_and_memory_where_its_gpus_are(
    model: Machine,
    gpus: tuple[int, ...],
    asked: tuple[float, float, float],
    held: Held,
    expected: Held,
) -> None:
    cpus, memory, rate = asked
    shape = Shape(gpus=len(gpus), cpus=cpus, memory_GiB=memory, memory_GBps=rate)
    assert as_held(split_numa(model, used(model, held), gpus, (), shape)) == expected


@pytest.mark.parametrize(
    ("model", "nics", "asked", "held", "expected"),
    [
        # beside its NICs
        (H100, ("mlx5_5",), (8, 64, 20), {}, {1: (8, 64, 20)}),
        (H100, ("mlx5_1", "mlx5_6"), (8, 64, 0), {}, {0: (4, 32, 0), 1: (4, 32, 0)}),
        (H100, ("mlx5_1", "mlx5_5", "mlx5_6"), (8, 64, 20), {}, {1: (8, 64, 20)}),
        (H100, ("mlx5_5",), (8, 64, 0), {1: (109, 1000, 0)}, {0: (5, 40, 0), 1: (3, 24, 0)}),
        (H100, ("mlx5_5",), (8, 64, 20), {1: (112, 0, 0)}, {0: (8, 0, 0), 1: (0, 64, 20)}),
        # bandwidth is where it is
        (H100, ("mlx5_5",), (8, 64, 20), {1: (0, 0, 390)}, {0: (8, 64, 20)}),
        # a storage NIC is near to no NUMA node: where most room is, as none is asked for
        (A100, ("mlx5_8",), (8, 64, 0), {}, {1: (8, 64, 0)}),
        (A100, (), (8, 64, 0), {1: (1, 0, 0), 3: (2, 0, 0), 5: (0, 1, 0), 7: (1, 0, 0)}, {5: (8, 64, 0)}),
        (A100, (), (8, 400, 0), {1: (1, 0, 0), 3: (2, 0, 0), 5: (0, 200, 0), 7: (3, 0, 0)}, {1: (8, 400, 0)}),
        (A100, (), (80, 64, 0), {}, {1: (64, 64, 0), 3: (16, 0, 0)}),
        (A100, (), (8, 64, 30), {1: (0, 0, 30), 3: (0, 0, 30), 5: (0, 0, 30), 7: (60, 500, 0)},
         {7: (4, 12, 30), 5: (4, 52, 0)}),
        # more bandwidth than a NUMA node has, from those with most
        (A100, (), (8, 0, 100), {1: (0, 0, 10)}, {3: (4, 0, 50), 5: (4, 0, 50)}),
        (ONE, (), (8, 0, 100), {}, {None: (8, 0, 100)}),
    ],
)  # fmt: skip
def test_a_member_without_gpus_is_beside_its_nics_or_where_most_room_is(
    model: Machine,
    nics: tuple[str, ...],
    asked: tuple[float, float, float],
    held: Held,
    expected: Held,
) -> None:
    shape = Shape(cpus=asked[0], memory_GiB=asked[1], memory_GBps=asked[2], nics=len(nics))
    assert as_held(split_numa(model, used(model, held), (), nics, shape)) == expected


def test_bandwidth_that_is_not_there_is_our_own_bug() -> None:
    full = used(H100, {0: (0, 0, 350)})
    with pytest.raises(AssertionError, match="NUMA node 0 has no 60 GB/s left"):
        split_numa(H100, full, (0,), (), Shape(gpus=1, memory_GBps=60))
    with pytest.raises(AssertionError, match="no NUMA node has 390 GB/s"):
        split_numa(H100, used(H100, {0: (0, 0, 50), 1: (0, 0, 50)}), (), (), Shape(memory_GBps=390))
    with pytest.raises(AssertionError, match="no 780 GB/s left together"):
        split_numa(H100, full, (), (), Shape(memory_GBps=780))


# ----- how many fit


@pytest.mark.parametrize(
    ("model", "held", "shape", "expected"),
    [
        (H100, {}, Shape(gpus=1, memory_GBps=100), 8),
        (H100, {}, Shape(gpus=1, memory_GBps=150), 4),
        (H100, {}, Shape(gpus=4, memory_GBps=400), 2),
        (H100, {}, Shape(gpus=8, memory_GBps=800), 1),
        (H100, {}, Shape(gpus=8, memory_GBps=801), 0),
        (H100, {}, Shape(gpus=3, memory_GBps=100), 2),
        (H100, {0: (0, 0, 300)}, Shape(gpus=1, memory_GBps=100), 5),
        (H100, {0: (0, 0, 300)}, Shape(gpus=8, memory_GBps=400), 0),
        (H100, {0: (0, 0, 300)}, Shape(gpus=2, memory_GBps=200), 2),  # one of them on both
        (H100, {}, Shape(memory_GBps=150), 4),
        (H100, {}, Shape(memory_GBps=500), 1),
        (H100, {}, Shape(mig="1g.10gb", memory_GBps=150), 4),
        (H100, {}, Shape(mig="1g.10gb", memory_GBps=500), 0),
        (ONE, {}, Shape(gpus=1, memory_GBps=30), 3),
        (H100, {}, Shape(gpus=1), ANY_NUMBER),
        (machine("dgx-h100"), {}, Shape(gpus=1, memory_GBps=900), ANY_NUMBER),
    ],
)
def test_bandwidth_admits_so_many_members(
    model: Machine, held: Held, shape: Shape, expected: int
) -> None:
    assert members_by_bandwidth(model, used(model, held), shape) == expected


@pytest.mark.parametrize(
    ("held", "free", "shape", "expected"),
    [
        ({}, 0xFF, Shape(gpus=1, memory_GBps=150), {2, 3, 4, 5}),
        ({0: (0, 0, 350)}, 0xFF, Shape(gpus=1, memory_GBps=100), {4, 5, 6, 7}),
        ({0: (0, 0, 350)}, 0x0F, Shape(gpus=2, memory_GBps=100), {0}),
        ({0: (0, 0, 350)}, 0xFF, Shape(gpus=1), set(range(8))),
        ({0: (0, 0, 350)}, 0xFF, Shape(mig="1g.10gb", memory_GBps=100), {4, 5, 6, 7}),
        ({0: (0, 0, 350)}, 0xFF, Shape(memory_GBps=100), set(range(8))),
    ],
)
def test_gpus_that_bandwidth_cannot_serve_are_left_out(
    held: Held, free: int, shape: Shape, expected: set[int]
) -> None:
    found = set(gpus_of(gpus_within_bandwidth(H100, used(H100, held), free, shape)))
    assert len(found) == len(expected)
    assert {gpu // 4 for gpu in found} == {gpu // 4 for gpu in expected}


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    gpus = draw(st.integers(0, 8))
    numa = draw(st.tuples(*[st.sampled_from([0, 0, 1, 2, None])] * gpus))
    rows = tuple(
        tuple("X" if a == b else "NV4" if a // 2 == b // 2 else "SYS" for b in range(gpus))
        for a in range(gpus)
    )
    near = draw(st.lists(st.lists(st.integers(0, gpus - 1), max_size=2) if gpus else st.just([])))
    return Machine(
        "drawn",
        gpus,
        links=rows,
        numa=numa,
        nics=tuple(Nic(f"mlx5_{i}", tuple(sorted(set(at)))) for i, at in enumerate(near)),
        cpus=draw(st.sampled_from([None, 7.0, 16.0, 40.5])),
        memory_GiB=draw(st.sampled_from([None, 10.0, 33.3])),
        numa_memory_GBps=draw(st.sampled_from([None, 0.1, 10.0, 33.333])),
    )


@st.composite
def states(draw: st.DrawFn, model: Machine) -> NumaUse:
    use = NumaUse.none(model)
    for name in numa_layout(model).names:
        held = NumaPart(
            name, draw(st.integers(0, 8)), draw(st.integers(0, 8)), draw(st.floats(0, 12))
        )
        use = use if use.missing(model, [held]) else use.changed(model, [held], +1)
    return use


def most_by_trying(model: Machine, use: NumaUse, free: int, gpus: int, rate: int) -> int:
    """The most members that any way to hand out GPUs serves, each GPU with an equal part of its member's rate."""
    layout = numa_layout(model)

    @cache
    def most(room: tuple[tuple[int, Fraction], ...]) -> int:
        best = 0
        for taken in product(*(range(min(gpus, here) + 1) for here, _ in room)):
            if sum(taken) == gpus:
                left = tuple(
                    (here - n, left - Fraction(n * rate, gpus))
                    for n, (here, left) in zip(taken, room, strict=True)
                )
                if all(rest >= 0 for _, rest in left):
                    best = max(best, 1 + most(left))
        return best

    return most(
        tuple(
            ((here & free).bit_count(), Fraction(layout.capacity[2] - held[2]))
            for here, held in zip(layout.gpus, use.held, strict=True)
        )
    )


@settings(max_examples=examples(80), deadline=None)
@given(machines(), st.data())
def test_members_are_counted_as_trying_every_way_counts_them(
    model: Machine, data: st.DataObject
) -> None:
    use = data.draw(states(model))
    free = data.draw(st.integers(0, (1 << model.gpus) - 1))
    shape = Shape(
        gpus=data.draw(st.integers(1, 4)),
        memory_GBps=data.draw(st.sampled_from([0.1, 3.0, 5.0, 10.0, 33.333])),
    )
    if model.numa_memory_GBps is None:
        assert gpus_within_bandwidth(model, use, free, shape) == free
        return
    rate = amounts_of(0, 0, shape.memory_GBps)[2]
    usable = gpus_within_bandwidth(model, use, free, shape)
    assert usable & ~free == 0
    assert usable.bit_count() // shape.gpus == most_by_trying(model, use, free, shape.gpus, rate)
    everything = (1 << model.gpus) - 1
    assert members_by_bandwidth(model, use, shape) == most_by_trying(
        model, use, everything, shape.gpus, rate
    )


# ----- one member after the other, as the module's text says


def one_node(model: Machine) -> Occupancy:
    return Occupancy(
        Fabric.build(Cluster("c", ("node",), {model.name: model}, (Node("n0", model.name),)))
    )


def member(
    model: Machine, occupancy: Occupancy, use: NumaUse, shape: Shape, rank: int
) -> MemberPlacement | None:
    """The next member on the node; None where there is no room for it."""
    names = occupancy.free_nics("n0")
    free = gpus_within_bandwidth(model, use, mask_of(occupancy.free_gpus("n0")), shape)
    if (
        free.bit_count() < shape.gpus
        or len(names) < shape.nics
        or members_by_bandwidth(model, use, shape) < 1
    ):
        return None
    free_nics = sum(1 << bit for bit, nic in enumerate(model.nics) if nic.name in names)
    shortages = numa_shortages(model, use, free, shape)
    gpus = choose_gpus(model, free, shape.gpus, free_nics, shape.nics, shortages)
    nics = (
        choose_nics(model, gpus, names, shape.nics)
        if gpus
        else nics_with_room(model, use, names, shape)
    )
    parts = split_numa(model, use, gpus, nics, shape)
    return MemberPlacement(
        "worker", rank, "n0", gpus, nics, shape.cpus, shape.memory_GiB, numa=parts
    )


SHAPES = st.builds(
    Shape,
    gpus=st.integers(0, 3),
    cpus=st.sampled_from([0, 0.5, 1, 3, 7]),
    memory_GiB=st.sampled_from([0, 1, 2.7, 9]),
    nics=st.integers(0, 2),
    memory_GBps=st.sampled_from([0, 0, 0.03, 2, 3.3333, 9]),
)


@settings(max_examples=examples(80), deadline=None)
@given(machines(), st.lists(SHAPES, max_size=6))
def test_members_hold_what_they_ask_as_near_as_there_is_room_and_no_bandwidth_twice(
    model: Machine, shapes: list[Shape]
) -> None:
    occupancy, use, layout = one_node(model), NumaUse.none(model), numa_layout(model)
    for rank, shape in enumerate(shapes):
        placed = member(model, occupancy, use, shape, rank)
        if placed is None or occupancy.missing([placed]):
            continue
        asked = amounts_of(shape.cpus, shape.memory_GiB, shape.memory_GBps)
        held = [amounts_of(p.cpus, p.memory_GiB, p.memory_GBps) for p in placed.numa]
        if placed.numa:
            assert tuple(map(sum, zip(*held, strict=True)))[:2] == asked[:2]
            assert 0 <= asked[2] - sum(rate for _, _, rate in held) < len(held)
        else:
            assert len(layout.names) == 1 or not any(asked)
        own = {model.numa[gpu] for gpu in placed.gpus} - {None} if len(layout.names) > 1 else set()
        if own:
            assert {part.numa for part in placed.numa if part.memory_GBps} <= own
        strange = [part for part in placed.numa if part.numa not in own]
        after = use.changed(model, placed.numa, +1)
        for resource, unit in ((0, 1_000_000), (1, 1)):
            at_home = [
                layout.capacity[resource] - at[resource]
                for name, at in zip(layout.names, after.held, strict=True)
                if name in own
            ]
            if own and any(amounts_of(p.cpus, p.memory_GiB, 0)[resource] for p in strange):
                assert all(left < unit for left in at_home), "cores of others before its own"
        occupancy.take(f"job-{rank}", [placed])
        use = after
        assert all(at[2] <= layout.capacity[2] for at in use.held)
    occupancy.check()
    for rank in range(len(shapes)):
        for placed in occupancy.owners.get(f"job-{rank}", ()):
            use = use.changed(model, placed.numa, -1)
    assert use == NumaUse.none(model)


@settings(max_examples=examples(100), deadline=None)
@given(machines(), SHAPES.filter(lambda shape: shape.memory_GBps > 0))
def test_as_many_members_as_were_counted_are_placed_one_after_the_other(
    model: Machine, shape: Shape
) -> None:
    shape = replace(shape, cpus=0, memory_GiB=0)
    occupancy, use = one_node(model), NumaUse.none(model)
    usable = gpus_within_bandwidth(model, use, (1 << model.gpus) - 1, shape)
    counted = members_by_bandwidth(model, use, shape)
    if shape.gpus:
        counted = min(counted, usable.bit_count() // shape.gpus)
    if shape.nics:
        counted = min(counted, len(model.nics) // shape.nics)
    placed = 0
    while placed < 12 and (one := member(model, occupancy, use, shape, placed)) is not None:
        occupancy.take(f"job-{placed}", [one])
        use = use.changed(model, one.numa, +1)
        placed += 1
    assert placed == min(counted, 12)
    occupancy.check()


# ----- joint choices


@pytest.mark.parametrize(
    ("held", "free", "shape", "expected"),
    [
        ({}, 0xFF, Shape(gpus=1, cpus=16), ()),
        ({0: (60, 0, 0)}, 0xFF, Shape(gpus=1, cpus=13), ()),
        ({0: (61, 0, 0)}, 0xFF, Shape(gpus=1, cpus=13), ((0x0F, 3),)),
        ({0: (61, 0, 0)}, 0xF1, Shape(gpus=1, cpus=13), ()),
        ({0: (112, 0, 0)}, 0xFF, Shape(gpus=1, cpus=13), ((0x0F, 0),)),
        ({1: (0, 600, 0)}, 0xFF, Shape(gpus=2, cpus=2, memory_GiB=256), ((0xF0, 3),)),
        ({}, 0xFF, Shape(gpus=8, cpus=224), ()),
        ({}, 0xFF, Shape(gpus=2, cpus=224), ((0x0F, 1), (0xF0, 1))),
        ({0: (112, 0, 0)}, 0xFF, Shape(cpus=13), ()),
        ({0: (120, 0, 0)}, 0xFF, Shape(gpus=1), ()),
        ({0: (120, 1, 0)}, 0xFF, Shape(gpus=1, memory_GiB=256), ((0x0F, 3),)),
    ],
)
def test_cores_and_memory_of_a_numa_node_serve_so_many_gpus(
    held: Held, free: int, shape: Shape, expected: tuple[tuple[int, int], ...]
) -> None:
    assert numa_shortages(H100, used(H100, held), free, shape) == expected


def test_a_member_goes_where_nics_and_cores_are_free() -> None:
    """Cores of socket 0 are gone; on socket 1 the NIC of GPU 4 is."""
    occupancy = one_node(H100)
    occupancy.take("cores", [MemberPlacement("w", 0, "n0", cpus=110, nics=("mlx5_4",),
                                             numa=(NumaPart(0, 110),))])  # fmt: skip
    use = used(H100, {0: (110, 0, 0)})
    placed = member(H100, occupancy, use, Shape(gpus=2, cpus=16, nics=2, memory_GiB=64), 0)
    assert placed is not None
    assert (placed.gpus, placed.nics) == ((5, 6), ("mlx5_5", "mlx5_6"))
    assert as_held(placed.numa) == {1: (16, 64, 0)}


@pytest.mark.parametrize(
    ("model", "held", "free", "shape", "expected"),
    [
        (H100, {}, "0 1 4 5", Shape(nics=2, memory_GiB=100), "0 1"),
        (H100, {0: (0, 10, 0)}, "0 1 4 5", Shape(nics=2, memory_GiB=100), "4 5"),
        (H100, {0: (0, 10, 0)}, "0 1 4", Shape(nics=2, memory_GiB=100), "0 1"),
        (H100, {0: (0, 10, 0)}, "0 1 4", Shape(nics=3, memory_GiB=100), "4 0 1"),
        (H100, {0: (0, 0, 390)}, "0 1 4 5", Shape(nics=1, memory_GBps=20), "4"),
        (A100, {}, "0 1 8 9", Shape(nics=2, memory_GiB=100), "8 9"),
        (A100, {}, "0 1 8", Shape(nics=2, memory_GiB=100), "0 1"),
        (ONE, {}, "", Shape(memory_GiB=1), ""),
        (H100, {}, "0 1", Shape(memory_GiB=1), ""),
    ],
)
def test_a_parameter_server_gets_nics_where_its_memory_fits(
    model: Machine, held: Held, free: str, shape: Shape, expected: str
) -> None:
    names = tuple(f"mlx5_{nic}" for nic in free.split())
    found = nics_with_room(model, used(model, held), names, shape)
    assert found == tuple(f"mlx5_{nic}" for nic in expected.split())


def test_more_nics_than_are_free_are_our_own_bug() -> None:
    with pytest.raises(AssertionError, match="3 NICs of 2"):
        nics_with_room(H100, NumaUse.none(H100), ("mlx5_0", "mlx5_4"), Shape(nics=3))
