"""NUMA nodes of machines, and what of them is held: tables, and taking and giving back in any order."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Machine
from gantree.model.placements import NumaPart
from gantree.topology.hardware.catalog import MACHINES, machine, plain
from gantree.topology.hardware.masks import gpus_of
from gantree.topology.hardware.numa import (
    UNTOLD,
    Amounts,
    NumaUse,
    amounts_of,
    numa_layout,
    numa_nodes,
    part_of,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dgx-h100", {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}),
        ("dgx-a100", {1: (2, 3), 3: (0, 1), 5: (6, 7), 7: (4, 5)}),
        ("mi300a-4", {0: (2,), 1: (3,), 2: (0,), 3: (1,)}),
        ("t4-4", {0: (0,), 1: (1, 2, 3)}),
        ("mi250x-8", {None: tuple(range(8))}),
        ("tpu-v4-host", {None: (0, 1, 2, 3)}),
        ("cpu-only", {None: ()}),
    ],
)
def test_a_machine_has_the_numa_nodes_that_its_gpus_name_or_one_without_a_number(
    name: str, expected: dict[int | None, tuple[int, ...]]
) -> None:
    layout = numa_layout(machine(name))
    assert dict(zip(layout.names, map(gpus_of, layout.gpus), strict=True)) == expected
    assert numa_nodes(machine(name)) == tuple(n for n in expected if n is not None)


def test_a_gpu_without_a_number_is_on_no_numa_node() -> None:
    layout = numa_layout(Machine("m", 4, numa=(0, None, 1, 1)))
    assert (layout.names, layout.gpus) == ((0, 1), (0b0001, 0b1100))
    assert layout.gpus_at((1, 2, 3)) == [0, 2]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (machine("dgx-h100"), (112_000_000, 1024 << 20, UNTOLD)),
        (replace(machine("dgx-a100"), numa_memory_GBps=50.5), (64_000_000, 512 << 20, 50_500_000)),
        (replace(plain("m", 4), numa_memory_GBps=300), (UNTOLD, UNTOLD, 300_000_000)),
    ],
)
def test_cpus_and_memory_are_spread_evenly_and_bandwidth_is_that_of_each(
    model: Machine, expected: Amounts
) -> None:
    assert numa_layout(model).capacity == expected


ODD = Machine("odd", 3, numa=(0, 1, 2), cpus=7, memory_GiB=100)


@pytest.mark.parametrize("model", [*MACHINES.values(), ODD], ids=lambda model: model.name)
def test_numa_nodes_together_have_no_less_than_the_machine(model: Machine) -> None:
    cpus, memory, _ = numa_layout(model).capacity
    nodes = len(numa_layout(model).names)
    assert cpus * nodes >= amounts_of(model.cpus or 0, 0, 0)[0]
    assert memory * nodes >= amounts_of(0, model.memory_GiB or 0, 0)[1]


@given(st.tuples(*[st.integers(0, 1 << 45)] * 3))
def test_amounts_survive_being_put_into_words(amounts: Amounts) -> None:
    part = part_of(0, amounts)
    assert amounts_of(part.cpus, part.memory_GiB, part.memory_GBps) == amounts


PARTS = st.builds(
    NumaPart,
    st.sampled_from([0, 1, None]),
    st.floats(0, 300),
    st.floats(0, 2000),
    st.floats(0, 1000),
)


@given(st.lists(st.tuples(PARTS, PARTS), max_size=8), st.randoms(use_true_random=False))
def test_what_is_given_back_in_any_order_leaves_nothing_held(
    members: list[tuple[NumaPart, NumaPart]], order: Random
) -> None:
    model = machine("dgx-h100")
    use = NumaUse.none(model)
    for parts in members:
        use = use.changed(model, parts, +1)
    assert use.held[1][0] == sum(
        amounts_of(part.cpus, 0, 0)[0] for parts in members for part in parts if part.numa == 1
    )
    order.shuffle(members)
    for parts in members:
        use = use.changed(model, parts, -1)
    assert use == NumaUse.none(model)


TWO = replace(machine("dgx-h100"), numa_memory_GBps=400)


@pytest.mark.parametrize(
    ("held", "asked", "problem"),
    [
        ([], [NumaPart(0, 500, 9999, 400)], ""),
        ([], [NumaPart(0, memory_GBps=400), NumaPart(1, memory_GBps=400)], ""),
        ([NumaPart(0, memory_GBps=300)], [NumaPart(1, memory_GBps=200)], ""),
        ([NumaPart(0, memory_GBps=300)], [NumaPart(None, memory_GBps=200)], ""),
        (
            [NumaPart(0, memory_GBps=300)],
            [NumaPart(0, memory_GBps=60), NumaPart(0, memory_GBps=60)],
            "120 GB/s of memory bandwidth of NUMA node 0 are not free, 100 GB/s are",
        ),
        ([], [NumaPart(2, cpus=1)], "there is no NUMA node 2"),
    ],
)
def test_only_bandwidth_and_numa_nodes_that_are_not_there_are_missing(
    held: list[NumaPart], asked: list[NumaPart], problem: str
) -> None:
    use = NumaUse.none(TWO).changed(TWO, held, +1)
    assert use.missing(TWO, asked) == problem


def test_bandwidth_of_a_machine_that_tells_no_numa_nodes_apart_is_counted_as_of_one() -> None:
    model = replace(plain("m", 4), numa_memory_GBps=100)
    use = NumaUse.none(model).changed(model, [NumaPart(None, 4, 8, 70)], +1)
    assert use.free(model)[0][2] == 30_000_000
    assert use.missing(model, [NumaPart(None, memory_GBps=30)]) == ""
    assert use.missing(model, [NumaPart(None, memory_GBps=31)]) == (
        "31 GB/s of memory bandwidth are not free, 30 GB/s are"
    )


def test_a_numa_node_that_is_not_there_is_our_own_bug() -> None:
    with pytest.raises(AssertionError, match="no NUMA node 7"):
        NumaUse.none(TWO).changed(TWO, [NumaPart(7, 1)], +1)
