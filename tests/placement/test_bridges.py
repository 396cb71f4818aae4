"""NVLinks between the GPUs that are taken and those that stay free: none is broken that need not be."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Machine
from gantree.placement.machine.devices import choose_gpus
from gantree.topology.discovery.gpus import machine_from
from gantree.topology.discovery.machines.nvidia.nvidia_smi import parse
from gantree.topology.hardware.catalog import bonded_links, machine
from gantree.topology.hardware.masks import mask_of as mask
from support.examples import examples
from support.gpu_choice import plain_link, plain_rank

PRINTS = Path(__file__).parents[1] / "data" / "nvidia_smi"
ALL = range(8)


def printed(name: str) -> Machine:
    text = (PRINTS / f"{name}.txt").read_text(encoding="utf-8")
    return machine_from(parse(text, name), name)


def quads(count: int) -> Machine:
    rows = tuple(
        tuple("X" if a == b else "NV4" if a // 4 == b // 4 else "SYS" for b in range(4 * count))
        for a in range(4 * count)
    )
    return Machine("quads", 4 * count, links=rows, numa=tuple(g // 4 for g in range(4 * count)))


LINKED = [  # real prints first
    printed("rtx-a6000-8gpu-nvlink-bridge-pairs"),
    printed("v100-sxm2-8gpu-hybrid-cube-mesh-1nic"),
    printed("v100-4gpu-nv1nv2-1nic-tabs"),
    machine("a100-pcie-pairs-4"),
    machine("mi250x-8"),
    quads(2),
]


def nvlinks(model: Machine) -> dict[tuple[int, int], int]:
    """Pairs of GPUs that NVLinks join, and how many."""
    width = {
        pair: bonded_links(plain_link(model, *pair)) for pair in combinations(range(model.gpus), 2)
    }
    return {pair: links for pair, links in width.items() if links}


def broken(model: Machine, free: frozenset[int], chosen: Iterable[int]) -> int:
    """NVLinks of which one end is taken now and the other stays free."""
    taken, left = set(chosen), free - set(chosen)
    return sum(
        links for (a, b), links in nvlinks(model).items()
        if (a in taken and b in left) or (b in taken and a in left)
    )  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(LINKED), st.data())
def test_no_bridge_is_broken_where_a_set_linked_as_well_breaks_fewer(
    model: Machine, data: st.DataObject
) -> None:
    free = data.draw(st.frozensets(st.integers(0, model.gpus - 1), min_size=1))
    count = data.draw(st.integers(1, min(4, len(free))))
    chosen = choose_gpus(model, mask(free), count)
    links_of = {
        other: (plain_rank(model, free, other)[0], broken(model, free, other))
        for other in combinations(sorted(free), count)
    }
    mine = links_of[tuple(sorted(chosen))]
    assert all(mine[1] <= width for links, width in links_of.values() if links == mine[0])


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(LINKED), st.lists(st.integers(1, 4), max_size=8), st.data())
def test_an_nvlink_inside_a_set_is_nobody_elses_until_the_set_is_given_back(
    model: Machine, counts: list[int], data: st.DataObject
) -> None:
    """Both ends of it are held by one holder, so no other holds an end; and who comes next does not count on it."""
    free, holders = (1 << model.gpus) - 1, list[tuple[int, ...]]()
    for count in counts:
        if holders and (count > free.bit_count() or data.draw(st.booleans())):
            free |= mask(holders.pop(data.draw(st.integers(0, len(holders) - 1))))
        elif count <= free.bit_count():
            chosen = choose_gpus(model, free, count)
            free &= ~mask(chosen)
            holders.append(chosen)
        links = [
            {pair for pair in nvlinks(model) if set(pair) <= set(holder)} for holder in holders
        ]
        for holder, own in zip(holders, links, strict=True):
            others = {gpu for other in holders if other != holder for gpu in other}
            assert all(others.isdisjoint(pair) and not mask(pair) & free for pair in own)


@pytest.mark.parametrize(
    ("number", "free", "count", "expected"),
    [
        (0, [0, 1, 2, 3, 4, 5], 1, {4}),
        (0, [0, 1, 2, 3, 4, 5, 7], 1, {7}),
        (0, [0, 1, 2, 3, 4, 6, 7], 3, {4, 6, 7}),
        (0, [0, 1, 3, 5, 6, 7], 2, {0, 1}),
        (1, [0, 1, 2, 3, 4], 1, {4}),
        (1, [0, 1, 2, 3], 2, {0, 3}),
        (1, [2, 3, 6, 7, 0], 1, {0}),
        (2, [0, 1, 2, 3], 2, {0, 3}),
        (5, [0, 1, 2, 3, 5, 6], 2, {5, 6}),
        (5, [0, 1, 2, 3, 5, 6], 1, {5}),
        (5, [0, 1, 2, 4, 5, 6, 7], 3, {0, 1, 2}),
    ],
)
def test_bridged_pairs_meshes_and_quads_stay_whole(
    number: int, free: Iterable[int], count: int, expected: set[int]
) -> None:
    assert set(choose_gpus(LINKED[number], mask(free), count)) == expected
