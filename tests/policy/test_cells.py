"""Packing cells, against trying every assignment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.policy.cells import Cell, CellPreference, Level, cells_of, levels_of, lost, pack
from gantree.policy.rules import QueueRule
from support.examples import examples

Sizes = list[list[int]]
"""GPUs of each node of each leaf."""


def tree(sizes: Sizes) -> tuple[Level, ...]:
    """Levels leaf, node and loose GPUs."""
    nodes = [gpus for leaf in sizes for gpus in leaf]
    leaf_of_node = [number for number, leaf in enumerate(sizes) for _ in leaf]
    node_of_gpu = np.repeat(np.arange(len(nodes)), nodes).astype(np.int64)
    leaf_of_gpu = np.array(leaf_of_node, dtype=np.int64)[node_of_gpu]
    loose = np.arange(len(node_of_gpu), dtype=np.int64)
    return levels_of([("leaf", leaf_of_gpu), ("node", node_of_gpu), ("gpus", loose)])


def packable(levels: tuple[Level, ...], clean: frozenset[int], counts: list[int]) -> bool:
    """Whether some assignment exists: every domain is tried for every cell."""
    place = next((place for place, count in enumerate(counts) if count), None)
    if place is None:
        return True
    if place == len(levels) - 1:
        return len(clean) >= counts[place]
    level = levels[place]
    rest = [*counts[:place], counts[place] - 1, *counts[place + 1 :]]
    for domain in np.flatnonzero(level.whole).tolist():
        gpus = frozenset(np.flatnonzero(level.domain_of_gpu == domain).tolist())
        if gpus <= clean and packable(levels, clean - gpus, rest):
            return True
    return False


uniform = st.builds(
    lambda leaves, gpus: [[gpus] * nodes for nodes in leaves],
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(1, 3),
)
uneven = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)
wanted = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 4))


def drawn_clean(data: st.DataObject, levels: tuple[Level, ...]) -> frozenset[int]:
    gpus = range(len(levels[-1].gpus_of_domain))
    dirty = data.draw(st.sets(st.sampled_from(list(gpus)), max_size=4), label="not clean")
    return frozenset(gpus) - dirty


def mask(levels: tuple[Level, ...], gpus: frozenset[int]) -> "np.typing.NDArray[np.bool_]":
    found = np.zeros(len(levels[-1].gpus_of_domain), dtype=np.bool_)
    found[sorted(gpus)] = True
    return found


@given(uniform, wanted, wanted, st.data())
@settings(max_examples=examples(100))
def test_on_machines_of_one_size_a_packing_is_found_exactly_where_there_is_one(
    sizes: Sizes, mine: tuple[int, ...], others: tuple[int, ...], data: st.DataObject
) -> None:
    levels = tree(sizes)
    clean = drawn_clean(data, levels)
    counts = [a + b for a, b in zip(mine, others, strict=True)]
    found = pack(levels, mask(levels, clean), mine, others)
    assert (found is not None) == packable(levels, clean, counts)


@given(uneven, wanted, wanted, st.data())
@settings(max_examples=examples(100))
def test_a_packing_gives_every_cell_a_clean_domain_of_its_own_on_any_tree(
    sizes: Sizes, mine: tuple[int, ...], others: tuple[int, ...], data: st.DataObject
) -> None:
    levels = tree(sizes)
    clean = drawn_clean(data, levels)
    costs = data.draw(st.lists(st.integers(0, 3), min_size=len(clean) + 4, max_size=len(clean) + 4))
    size = len(levels[-1].gpus_of_domain)
    preference = CellPreference(np.resize(np.array(costs, dtype=np.float64), size))
    found = pack(levels, mask(levels, clean), mine, others, preference)
    if found is None:
        return
    left = set(clean)
    for level, packing, a, b in zip(levels, found, mine, others, strict=True):
        assert (len(packing.mine), len(packing.others)) == (a, b)
        for domain in (*packing.mine, *packing.others):
            gpus = set(np.flatnonzero(level.domain_of_gpu == domain).tolist())
            assert level.whole[domain] and gpus <= left
            left -= gpus


@given(uniform, wanted, st.data())
@settings(max_examples=examples(60))
def test_any_domain_that_a_packing_gives_may_be_bound_and_the_rest_still_packs(
    sizes: Sizes, others: tuple[int, ...], data: st.DataObject
) -> None:
    levels = tree(sizes)
    clean = mask(levels, drawn_clean(data, levels))
    found = pack(levels, clean, (0, 0, 0), others)
    given_away = [
        (place, domain) for place, packing in enumerate(found or ()) for domain in packing.others
    ]
    if not given_away:
        return
    place, domain = data.draw(st.sampled_from(given_away))
    counts = list(others)
    counts[place] -= 1
    assert pack(levels, clean & ~levels[place].gpus_in([domain]), (0, 0, 0), counts) is not None


def test_a_wide_cell_takes_the_domain_of_which_narrower_cells_lose_least() -> None:
    levels = tree([[2], [2], [2, 2]])
    assert pack(levels, np.ones(8, dtype=np.bool_), (0, 0, 0), (1, 3, 0)) is not None


def test_a_queue_gets_what_it_likes_and_the_others_get_the_rest() -> None:
    levels = tree([[2], [2], [2]])
    cost = np.array([9.0, 9.0, 5.0, 5.0, 0.0, 0.0])
    found = pack(levels, np.ones(6, dtype=np.bool_), (0, 1, 0), (0, 1, 0), CellPreference(cost))
    assert found is not None
    assert found[1].mine == (2,) and found[1].others == (0,)


def test_narrow_cells_go_to_wide_domains_that_are_split_already() -> None:
    levels = tree([[2, 2], [2, 2]])
    clean = np.array([True] * 4 + [False] * 2 + [True] * 2)
    found = pack(levels, clean, (0, 1, 0), (0, 0, 0))
    assert found is not None and found[1].mine == (3,)


def test_a_cell_is_as_large_as_most_domains_of_its_tier() -> None:
    levels = tree([[8, 8], [8, 8], [8]])
    assert levels[0].whole.tolist() == [True, True, False]
    assert pack(levels, np.ones(40, dtype=np.bool_), (2, 1, 0), (0, 0, 0)) is not None
    assert pack(levels, np.ones(40, dtype=np.bool_), (3, 0, 0), (0, 0, 0)) is None


def test_later_cells_are_lost_first_and_narrower_ones_that_still_fit_are_not() -> None:
    levels = tree([[2, 2], [2, 2]])
    clean = np.array([True] * 7 + [False])
    cells = cells_of(
        (
            QueueRule("a", cells=(("leaf", 1),)),
            QueueRule("b", cells=(("leaf", 1),)),
            QueueRule("c", cells=(("node", 1), ("gpus", 1))),
        )
    )
    assert lost(levels, clean, cells) == (Cell("b", "leaf", 0),)


def test_tiers_that_cut_across_each_other_are_refused() -> None:
    halves, pairs = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    with pytest.raises(BadInput, match="use one of the two"):
        levels_of([("socket", halves), ("nvlink", pairs)])
