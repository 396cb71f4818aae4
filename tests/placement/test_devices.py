"""Choosing GPUs and NICs inside a node: tables of what people expect, and a judge that tries everything."""

from collections.abc import Iterable
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Machine, Nic
from gantree.model.errors import BadInput
from gantree.placement.machine.devices import choose_gpus, choose_nics, inner_domains
from gantree.placement.machine.gpu_sets import GpuLinks, Greedy
from gantree.topology.hardware.catalog import MACHINES, machine, plain, weakness
from gantree.topology.hardware.masks import mask_of as mask
from support.examples import examples
from support.gpu_choice import FreeNearby, plain_choice, plain_counts, plain_ring

CLASSES = ("NV1", "NV2", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", "")


@st.composite
def machines(draw: st.DrawFn, largest: int = 6) -> Machine:
    gpus = draw(st.integers(1, largest))
    pool = draw(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=4))
    rows = [["X"] * gpus for _ in range(gpus)]
    for a, b in combinations(range(gpus), 2):
        rows[a][b] = rows[b][a] = draw(st.sampled_from(pool))
    near = st.lists(st.integers(0, gpus - 1), max_size=3, unique=True).map(tuple)
    nics = draw(st.lists(near, max_size=4))
    return Machine(
        "drawn",
        gpus,
        links=draw(st.sampled_from([(), tuple(map(tuple, rows))])),
        numa=draw(st.one_of(st.just(()), st.tuples(*[st.sampled_from([0, 1, None])] * gpus))),
        nics=tuple(Nic(f"mlx5_{i}", gpus_near) for i, gpus_near in enumerate(nics)),
    )


@settings(max_examples=examples(40), deadline=None)
@given(machines(), st.data())
def test_the_choice_is_that_of_trying_every_set_and_every_ring(
    model: Machine, data: st.DataObject
) -> None:
    free = data.draw(st.frozensets(st.integers(0, model.gpus - 1), min_size=1))
    count = data.draw(st.integers(1, len(free)))
    chosen = choose_gpus(model, mask(free), count)
    expected = plain_choice(model, free, count)
    assert tuple(sorted(chosen)) == expected
    best = min(plain_ring(model, (expected[0], *rest)) for rest in permutations(expected[1:]))
    assert plain_ring(model, chosen) == best
    hops = [
        plain_counts(model, [hop]) for hop in zip(chosen, (*chosen[1:], chosen[0]), strict=True)
    ]
    assert count == 1 or hops[-1] == max(hops), "the worst hop closes the ring"


@st.composite
def nearby_resources(draw: st.DrawFn, model: Machine) -> FreeNearby:
    everything = (1 << model.gpus) - 1
    limits = st.tuples(st.integers(1, everything), st.integers(0, 3))
    return FreeNearby(
        draw(st.integers(0, (1 << len(model.nics)) - 1)),
        draw(st.integers(0, 3)),
        tuple(draw(st.lists(limits, max_size=2))),
    )


@settings(max_examples=examples(40), deadline=None)
@given(machines(), st.data())
def test_with_nics_and_cores_the_choice_is_that_of_trying_every_set(
    model: Machine, data: st.DataObject
) -> None:
    free = data.draw(st.frozensets(st.integers(0, model.gpus - 1), min_size=1))
    count = data.draw(st.integers(1, len(free)))
    nearby = data.draw(nearby_resources(model))
    chosen = choose_gpus(model, mask(free), count, nearby.free_nics, nearby.nics, nearby.shortages)
    assert tuple(sorted(chosen)) == plain_choice(model, free, count, nearby)


@pytest.mark.parametrize("name", [name for name in MACHINES if machine(name).gpus])
def test_on_every_machine_of_the_catalogue_the_choice_is_that_of_trying_every_set(
    name: str,
) -> None:
    model, chance = machine(name), Random(name)
    for _ in range(3):
        free = frozenset(gpu for gpu in range(model.gpus) if chance.random() < 0.8) or frozenset(
            [0]
        )
        count = chance.randint(1, min(len(free), 4 if model.gpus <= 8 else 3))
        nearby = FreeNearby(
            chance.getrandbits(len(model.nics)) if model.nics else 0, chance.randint(0, 4)
        )
        assert tuple(sorted(choose_gpus(model, mask(free), count))) == plain_choice(
            model, free, count
        )
        chosen = choose_gpus(model, mask(free), count, nearby.free_nics, nearby.nics)
        assert tuple(sorted(chosen)) == plain_choice(model, free, count, nearby)


ALL = range(8)


@pytest.mark.parametrize(
    ("name", "free", "count", "taken_nics", "nics", "expected"),
    [
        ("dgx-h100", ALL, 4, [], 4, {0, 1, 2, 3}),
        ("dgx-h100", ALL, 4, [2], 4, {4, 5, 6, 7}),
        ("dgx-h100", ALL, 1, [0, 1], 1, {2}),
        ("dgx-h100", ALL, 4, [2, 5], 4, {0, 1, 3, 4}),  # a socket is crossed, no NIC is shared
        ("dgx-h100", ALL, 8, [2, 5], 6, set(ALL)),
        ("dgx-h100", ALL, 2, [0, 1, 2, 3, 4, 5, 6], 0, {4, 7}),
        ("dgx-a100", ALL, 2, [0], 2, {2, 3}),
        ("dgx-a100", ALL, 2, [0, 1], 0, {2, 3}),
        ("dgx-1-v100", ALL, 2, [1], 1, {6, 7}),
        ("dgx-1-v100", [2, 3, 4], 2, [], 1, {2, 3}),
        ("dgx-1-v100", [0, 2, 3], 2, [], 1, {2, 3}),
        ("dgx-1-v100", [0, 2, 3], 2, [], 2, {0, 3}),  # as near to each other, and to two NICs
        ("a6000-pairs-8", ALL, 2, [], 1, {6, 7}),
        ("a6000-pairs-8", ALL, 4, [], 1, {4, 5, 6, 7}),
        ("a6000-pairs-8", [0, 1, 4, 6], 2, [], 1, {0, 1}),  # a bridge before a NIC
        ("a6000-pairs-8", [0, 4], 1, [], 1, {4}),  # far from a NIC, and farther
        ("dgx-h100", [3, 4], 1, [0, 1, 2, 3, 4, 5, 6], 1, {4}),
        ("rtx4090-8", ALL, 4, [], 1, {0, 1, 2, 3}),
        ("rtx4090-8", ALL, 4, [0], 1, {0, 1, 2, 3}),
    ],
)
def test_a_gpu_whose_nic_is_taken_or_broken_is_worth_less(
    name: str,
    free: Iterable[int],
    count: int,
    taken_nics: list[int],
    nics: int,
    expected: set[int],
) -> None:
    model = machine(name)
    left = (1 << len(model.nics)) - 1 & ~mask(taken_nics)
    assert set(choose_gpus(model, mask(free), count, left, nics)) == expected


def test_cores_that_are_left_decide_between_sockets_that_are_alike() -> None:
    model = machine("dgx-h100")
    assert choose_gpus(model, 0xFF, 2, None, 0, ((0x0F, 0),)) == (4, 5)
    assert set(choose_gpus(model, 0xFF, 4, None, 0, ((0x0F, 3), (0xF0, 2)))) == {0, 1, 2, 4}
    assert set(choose_gpus(model, 0xFF, 5, None, 0, ((0x0F, 4), (0xF0, 2)))) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("name", "free", "count", "expected"),
    [
        ("a6000-pairs-8", range(8), 2, {0, 1}),
        ("a6000-pairs-8", [0, 2, 4, 5, 7], 2, {4, 5}),
        ("a6000-pairs-8", [0, 2, 3, 4, 5], 1, {0}),
        ("a6000-pairs-8", range(8), 4, {0, 1, 2, 3}),
        ("a6000-pairs-8", [0, 2, 3, 4, 5, 6, 7], 4, {4, 5, 6, 7}),
        ("a100-pcie-pairs-4", [1, 2, 3], 2, {2, 3}),
        ("dgx-h100", range(8), 4, {0, 1, 2, 3}),
        ("dgx-h100", range(1, 8), 4, {4, 5, 6, 7}),
        ("dgx-h100", [2, 3, 4, 5, 6, 7], 2, {2, 3}),
        ("dgx-h100", [3, 4, 5, 6, 7], 1, {3}),
        ("dgx-a100", [1, 2, 4, 5, 7], 2, {4, 5}),
        ("dgx-a100", [1, 2, 3, 4, 5, 6, 7], 1, {1}),
        ("dgx-1-v100", range(8), 2, {2, 3}),
        ("dgx-1-v100", range(8), 4, {0, 1, 2, 3}),
        ("dgx-1-v100", [0, 1, 2, 4], 2, {1, 2}),
        ("dgx-2", range(16), 8, set(range(8))),
        ("dgx-2", range(1, 16), 8, set(range(8, 16))),
        ("dgx-2", [0, 1, 2, 3, *range(8, 16)], 4, {0, 1, 2, 3}),
        ("t4-4", range(4), 2, {1, 2}),
        ("t4-4", range(4), 1, {0}),
        ("rtx4090-8", [0, 1, 2, 4, 5, 6, 7], 4, {4, 5, 6, 7}),
        ("rtx4090-8", [0, 1, 2, 4, 5, 6, 7], 2, {0, 1}),
    ],
)
def test_gpus_that_are_close_are_taken_and_whole_groups_left(
    name: str, free: Iterable[int], count: int, expected: set[int]
) -> None:
    assert set(choose_gpus(machine(name), mask(free), count)) == expected


def test_link_order_follows_the_strongest_ring_of_a_hybrid_cube_mesh() -> None:
    """All hops have two NVLinks; in index order three of eight would have one, and two none."""
    model = machine("dgx-1-v100")
    ring = choose_gpus(model, 0xFF, 8)
    assert [model.links[a][b] for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)] == [
        "NV2"
    ] * 8


def test_without_a_link_matrix_numa_decides_and_then_the_index() -> None:
    interleaved = Machine("m", 4, numa=(0, 1, 0, 1))
    assert choose_gpus(interleaved, 0b1111, 2) == (0, 2)
    assert choose_gpus(interleaved, 0b1111, 4) == (0, 2, 3, 1)
    assert choose_gpus(plain("m", 4), 0b1111, 3) == (0, 1, 2)


def test_nothing_of_nothing_is_nothing() -> None:
    assert choose_gpus(machine("cpu-only"), 0, 0) == ()


def test_asking_for_more_than_is_free_is_our_own_bug() -> None:
    with pytest.raises(AssertionError, match="2 GPUs of 1"):
        choose_gpus(machine("dgx-h100"), 0b1, 2)
    with pytest.raises(AssertionError, match="has not"):
        choose_gpus(machine("t4-4"), 0b10000, 1)
    with pytest.raises(AssertionError, match="no such NICs"):
        choose_nics(machine("dgx-h100"), (0,), ("eth0",), 1)


def test_machines_that_are_equal_but_not_the_same_get_the_same_answers() -> None:
    twins = [blocks(6, 3), blocks(6, 3)]
    assert twins[0] is not twins[1]
    assert [choose_gpus(twin, 0b110101, 2) for twin in twins] == [(0, 2), (0, 2)]


# ----- machines too large to try every set -----


def blocks(gpus: int, size: int) -> Machine:
    rows = tuple(
        tuple("X" if a == b else "PIX" if a // size == b // size else "SYS" for b in range(gpus))
        for a in range(gpus)
    )
    return Machine("blocks", gpus, links=rows, numa=tuple(gpu // size for gpu in range(gpus)))


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_on_large_machines_a_set_that_fits_a_block_takes_the_tightest_such_block(
    data: st.DataObject,
) -> None:
    model, size = blocks(24, 6), 6
    free = data.draw(st.frozensets(st.integers(0, 23), min_size=1))
    count = data.draw(st.integers(1, min(size, len(free))))
    room = [len([gpu for gpu in free if gpu // size == block]) for block in range(4)]
    assume(max(room) >= count)
    chosen = choose_gpus(model, mask(free), count)
    assert len(set(chosen)) == count and free.issuperset(chosen)
    assert len({gpu // size for gpu in chosen}) == 1
    assert room[chosen[0] // size] == min(left for left in room if left >= count)


@settings(max_examples=examples(30), deadline=None)
@given(st.sampled_from([2, 3, 4]), st.data())
def test_growing_greedily_finds_what_trying_every_set_finds_on_nested_machines(
    size: int, data: st.DataObject
) -> None:
    model = blocks(8, size)
    free = data.draw(st.frozensets(st.integers(0, 7), min_size=1))
    count = data.draw(st.integers(1, len(free)))
    weak = tuple(tuple(weakness(link) for link in row) for row in model.links)
    none = ((0,) * 8,) * 8
    links = GpuLinks(weak, none, inner_domains(model, "pcie"), inner_domains(model, "socket"))
    grown = Greedy(links).choose(mask(free), count)
    exact = choose_gpus(model, mask(free), count)
    assert plain_ring(model, grown)[0] <= plain_ring(model, exact)[0] + 2
    assert sorted(grown) == sorted(set(grown)) and free.issuperset(grown) and len(grown) == count
    if len({gpu // size for gpu in exact}) == 1:
        assert sorted(grown) == sorted(exact)


def test_seventy_two_gpus_in_one_machine_are_no_problem() -> None:
    model = plain("rack", 72)
    assert choose_gpus(model, ((1 << 72) - 1) ^ 0b101, 8) == (1, 3, 4, 5, 6, 7, 8, 9)


def test_in_a_large_machine_too_a_gpu_whose_nic_is_taken_is_worth_less() -> None:
    model = plain("rack", 72, nics=72)
    everything = (1 << 72) - 1
    assert set(choose_gpus(model, everything, 8, everything ^ 0b101)) == {1, *range(3, 10)}
    assert choose_gpus(model, everything, 2, 0b11 << 40) == (40, 41)
    assert set(choose_gpus(blocks(24, 6), (1 << 24) - 1, 4, 0, 0, ((0b111111, 3),))) == {6, 7, 8, 9}


# ----- domains inside the node -----


@pytest.mark.parametrize(
    ("name", "tier", "expected"),
    [
        ("dgx-h100", "nvlink", ["11111111"]),
        ("dgx-h100", "socket", ["11110000", "00001111"]),
        ("dgx-h100", "pcie", [f"{'0' * gpu}1{'0' * (7 - gpu)}" for gpu in range(8)]),
        ("dgx-a100", "pcie", ["11000000", "00110000", "00001100", "00000011"]),
        ("dgx-1-v100", "nvlink", ["11111111"]),
        ("dgx-1-v100", "pcie", ["11000000", "00110000", "00001100", "00000011"]),
        ("a6000-pairs-8", "nvlink", ["11000000", "00110000", "00001100", "00000011"]),
        ("rtx4090-8", "pcie", ["11110000", "00001111"]),
        ("rtx4090-8", "nvlink", [f"{'0' * gpu}1{'0' * (7 - gpu)}" for gpu in range(8)]),
        ("t4-4", "socket", ["1000", "0111"]),
        ("t4-4", "pcie", ["1000", "0100", "0010", "0001"]),
        ("t4-4", "gpu", ["1000", "0100", "0010", "0001"]),
        ("cpu-only", "socket", []),
    ],
)
def test_domains_inside_a_node_drawn_with_gpu_0_on_the_left(
    name: str, tier: str, expected: list[str]
) -> None:
    found = [f"{bits:0{machine(name).gpus}b}"[::-1] for bits in inner_domains(machine(name), tier)]
    assert found == expected


@settings(max_examples=examples(40), deadline=None)
@given(machines(8), st.sampled_from(["nvlink", "socket", "pcie", "gpu"]))
def test_domains_of_a_tier_share_all_gpus_out(model: Machine, tier: str) -> None:
    domains = inner_domains(model, tier)
    assert sum(domains) == (1 << model.gpus) - 1
    assert sum(domain.bit_count() for domain in domains) == model.gpus
    assert list(domains) == sorted(domains, key=lambda domain: domain & -domain)


def test_a_plain_machine_has_no_nvlink_one_socket_and_pairs_by_shared_nics() -> None:
    model = plain("m", 4, nics=2)
    assert inner_domains(model, "nvlink") == (1, 2, 4, 8)
    assert inner_domains(model, "socket") == (0b1111,)
    assert inner_domains(model, "pcie") == (0b0011, 0b1100)


def test_an_unknown_inner_tier_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(BadInput, match=r"'rack' .*socket, nvlink, pcie, gpu"):
        inner_domains(machine("t4-4"), "rack")


# ----- NICs -----


def nics(numbers: str) -> tuple[str, ...]:
    return tuple(f"mlx5_{number}" for number in numbers.split())


@pytest.mark.parametrize(
    ("name", "gpus", "free", "expected"),
    [
        ("dgx-h100", (0, 1, 2, 3), "0 1 2 3 4 5 6 7", "0 1 2 3"),
        ("dgx-h100", (5, 4), "0 1 2 3 4 5 6 7", "5 4"),
        ("dgx-h100", (5,), "0 1 2 3 4 6 7", "4"),
        ("dgx-h100", (5,), "0 1 2 3", "0"),
        ("dgx-a100", (0, 1, 2, 3), "0 1 2 3 4 5 6 7 8 9", "0 2"),
        ("dgx-a100", (0, 1, 2, 3), "0 1 2 3 4 5 6 7 8 9", "0 1 2 3"),
        ("dgx-a100", (6,), "4 5 7 8 9", "7"),
        ("dgx-a100", (6, 7), "4 8 9", "4"),
        ("dgx-a100", (), "4 5 8 9", "8 9"),
        ("dgx-2", (0, 1), "1 2 3 4 5 6 7", "1"),
        ("a6000-pairs-8", (0, 1), "0 1", "0"),
        ("a6000-pairs-8", (0, 1), "0 1", ""),
    ],
)
def test_the_nearest_nics_are_taken_and_spread_over_the_gpus(
    name: str, gpus: tuple[int, ...], free: str, expected: str
) -> None:
    wanted = nics(expected)
    assert choose_nics(machine(name), gpus, nics(free), len(wanted)) == wanted


@settings(max_examples=examples(50), deadline=None)
@given(machines(), st.data())
def test_no_nic_that_is_near_is_left_while_one_that_is_not_is_taken(
    model: Machine, data: st.DataObject
) -> None:
    everything = list(range(model.gpus))
    gpus = tuple(data.draw(st.lists(st.sampled_from(everything), unique=True)))
    free = [nic for nic in model.nics if data.draw(st.booleans())]
    count = data.draw(st.integers(0, len(free)))
    taken = choose_nics(model, gpus, tuple(nic.name for nic in free), count)
    near = {nic.name for nic in free if set(nic.near) & set(gpus)}
    assert len(set(taken)) == count and set(taken) <= {nic.name for nic in free}
    assert set(taken) <= near or near <= set(taken)
