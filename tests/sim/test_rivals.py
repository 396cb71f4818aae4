"""Published placements, each on a picture where its rule decides; and what all of them must keep to."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.rivals.best_fit import best_fit
from gantree.sim.rivals.bisection import (
    bisection,
    cut_weight,
    fiduccia_mattheyses,
    halved,
    job_graph,
)
from gantree.sim.rivals.gpu_packing import gpu_packing
from gantree.sim.rivals.level_counting import level_counting
from gantree.sim.rivals.random_fit import random_fit, random_nodes
from gantree.sim.rivals.units import Units
from gantree.testing.pictures import drawn

RULES: dict[str, Callable[[Sequence[int], int, int], Units]] = {
    "best fit": best_fit,
    "random fit": lambda free, units, nodes: random_fit(free, units, nodes, Random(1)),
    "gpu packing": gpu_packing,
    "bisection": lambda free, units, nodes: bisection(free, units, nodes, 0.5, 0.5),
}


# ----- best fit, packing, random


@pytest.mark.parametrize(
    ("free", "units", "why"),
    [
        ([5, 3, 9], ["111", "000", "222"], "the fullest that holds a unit, then the next"),
        ([4, 4, 3], ["222", "000", "111"], "equal ones in their order"),
        ([7, 3, 4], ["111", "222", "000"], "whole units as long as any domain holds one"),
        ([2, 2, 5], ["222", "001", "122"], "what is left of the fullest where none holds it"),
    ],
)
def test_best_fit_takes_the_fullest_domain_that_holds_a_unit(
    free: list[int], units: list[str], why: str
) -> None:
    assert as_text(best_fit(free, 3, 3)) == units, why


@pytest.mark.parametrize(
    ("free", "units"),
    [
        ([5, 3, 9], ["111", "000", "002"]),
        ([4, 2, 9], ["110", "000", "222"]),
        ([0, 1, 8], ["122", "222", "222"]),
    ],
)
def test_packing_fills_the_fullest_domain_and_cuts_units_where_it_ends(
    free: list[int], units: list[str]
) -> None:
    assert as_text(gpu_packing(free, 3, 3)) == units


def test_random_fit_keeps_units_whole_while_a_domain_holds_one_and_reaches_all_domains() -> None:
    first = Counter(random_fit([5, 3, 9], 1, 3, Random(seed))[0][0] for seed in range(60))
    assert sorted(first) == [0, 1, 2]
    assert all(
        len({*unit}) == 1
        for seed in range(60)
        for unit in random_fit([5, 4, 9], 3, 3, Random(seed))
    )


def test_random_nodes_take_each_slot_at_most_once() -> None:
    assert random_nodes([1, 0, 2, 1], 4, Random(0)) == [(0, 1), (2, 2), (3, 1)]
    with pytest.raises(ValueError, match="only 4 slots are free"):
        random_nodes([1, 0, 2, 1], 5, Random(0))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from(sorted(RULES)),
)
def test_every_rule_places_all_nodes_where_there_is_room(
    free: list[int], units: int, nodes: int, rule: str
) -> None:
    if sum(free) < units * nodes:
        with pytest.raises(ValueError, match=f"only {sum(free)} are free"):
            RULES[rule](free, units, nodes)
        return
    placed = RULES[rule](free, units, nodes)
    assert [len(unit) for unit in placed] == [nodes] * units
    taken = Counter(domain for unit in placed for domain in unit)
    assert all(taken[domain] <= free[domain] for domain in taken)


def as_text(units: Units) -> list[str]:
    """The domains of each unit's nodes, as digits."""
    return ["".join(map(str, unit)) for unit in units]


# ----- bisection


def test_halves_have_about_as_many_free_nodes() -> None:
    assert halved([0, 1, 2, 3], [9, 2, 5, 4]) == ([0, 1], [2, 3])


@pytest.mark.parametrize(
    ("free", "within", "across", "expected", "why"),
    [
        ([4, 6], 0.5, 0.5, ["00", "00"], "nothing is cut in the tighter half that holds the job"),
        ([2, 2], 0.9, 0.1, ["00", "11"], "units stay whole where most is sent inside them"),
        ([2, 2], 0.1, 0.9, ["01", "01"], "units are cut where most is sent between them"),
        ([3, 1], 0.9, 0.1, ["00", "01"], "parts are as large as the halves have room"),
    ],
)
def test_bisection_cuts_what_sends_least(
    free: list[int], within: float, across: float, expected: list[str], why: str
) -> None:
    assert as_text(bisection(free, 2, 2, within, across)) == expected, why


def test_units_form_rings_across_and_rows_within() -> None:
    assert job_graph(3, 2, within=2.0, across=1.0)[0] == [(1, 2.0), (2, 1.0), (4, 1.0)]
    assert job_graph(2, 2, within=2.0, across=1.0)[0] == [(1, 2.0), (2, 1.0)]
    assert job_graph(2, 2, within=2.0, across=0.0)[0] == [(1, 2.0)]


def test_a_pass_goes_through_worse_cuts_to_a_better_one() -> None:
    # two triangles joined by a thread; the start cuts both, and every first move makes it no better
    edges = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]
    graph: list[list[tuple[int, float]]] = [[] for _ in range(6)]
    for a, b in edges:
        graph[a].append((b, 1.0))
        graph[b].append((a, 1.0))
    start = [0, 3, 4, 1, 2, 5]
    assert cut_weight(graph, range(6), {0, 3, 4}) == 5
    found = fiduccia_mattheyses(graph, start, 3, 2, 4)
    assert found in ({0, 1, 2}, {3, 4, 5})


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([(0.0, 1.0), (0.3, 0.7), (0.5, 0.5), (1.0, 0.0)]),
    st.data(),
)
def test_a_cut_is_no_heavier_than_its_start_nor_lighter_than_the_lightest(
    units: int, nodes: int, sent: tuple[float, float], data: st.DataObject
) -> None:
    vertices = range(units * nodes)
    graph = job_graph(units, nodes, *sent)
    fewest = data.draw(st.integers(0, len(vertices)))
    most = data.draw(st.integers(fewest, len(vertices)))
    middle = data.draw(st.integers(fewest, most))
    order = data.draw(st.permutations(vertices))
    found = fiduccia_mattheyses(graph, order, middle, fewest, most)
    assert fewest <= len(found) <= most
    weight = cut_weight(graph, vertices, found)
    assert weight <= cut_weight(graph, vertices, {*order[:middle]}) + 1e-9
    lightest = min(
        cut_weight(graph, vertices, {*chosen})
        for size in range(fewest, most + 1)
        for chosen in combinations(vertices, size)
    )
    assert weight >= lightest - 1e-9


# ----- level counting


@pytest.mark.parametrize(
    ("picture", "members", "preferred", "expected", "why"),
    [
        (
            "s0/l0: n0 .. n1 ..\n s0/l1: n2 .. n3 .a\n s1/l2: n4 .. n5 ..",
            3,
            "leaf",
            {"n2": 2, "n3": 1},
            "the leaf with the least room that holds the gang, its nodes largest first",
        ),
        (
            "s0/l0: n0 .. n1 aa\n s0/l1: n2 .. n3 .a\n s1/l2: n4 .a n5 aa",
            4,
            "leaf",
            {"n0": 2, "n2": 2},
            "no leaf holds it, so the spine with the least room; nodes are taken without regard to leaves",
        ),
        (
            "s0/l0: n0 .. n1 .a\n s0/l1: n2 aa n3 .a\n s1/l2: n4 .. n5 aa",
            5,
            "leaf",
            {"n0": 2, "n1": 1, "n4": 2},
            "no spine holds it: the largest first, then the tightest for what is left",
        ),
        (
            "s0/l0: n0 .. n1 ..\n s0/l1: n2 .. n3 ..",
            2,
            "leaf",
            {"n0": 2},
            "equal ones by name",
        ),
        (
            "s0/l0: n0 .. n1 ..\n s1/l1: n2 .. n3 .a\n s1/l2: n4 .. n5 ..",
            3,
            "node",
            {"n2": 2, "n3": 1},
            "no node holds it, so the next level up: the tightest leaf, not the tightest spine",
        ),
    ],
)
def test_level_counting_takes_the_fewest_domains_by_counts(
    picture: str, members: int, preferred: str, expected: dict[str, int], why: str
) -> None:
    occupancy = drawn(picture)
    free = occupancy.free_gpus_of_node.tolist()
    found = level_counting(occupancy.fabric, free, members, preferred)
    assert {occupancy.fabric.nodes[node].name: count for node, count in found} == expected, why


def test_level_counting_does_not_keep_to_what_parents_were_counted_for() -> None:
    """Six are counted for leaf l1 and two for l0; the largest nodes of both then are those of l0 first."""
    occupancy = drawn("s0/l0: n0 .... n1 .aaa\n s0/l1: n2 ...a n3 ...a")
    free = occupancy.free_gpus_of_node.tolist()
    found = level_counting(occupancy.fabric, free, 8, "leaf")
    assert [(occupancy.fabric.nodes[node].name, count) for node, count in found] == [
        ("n0", 4),
        ("n1", 1),
        ("n2", 3),
    ]


@given(st.lists(st.integers(0, 4), min_size=8, max_size=8), st.integers(1, 20))
def test_level_counting_places_every_member_in_a_free_slot_of_one_domain_where_one_holds_all(
    slots: list[int], members: int
) -> None:
    rows = (f"s{row // 2}/l{row}: n{2 * row} .... n{2 * row + 1} ...." for row in range(4))
    fabric = drawn("\n".join(rows)).fabric
    if sum(slots) < members:
        with pytest.raises(ValueError, match="slots are free"):
            level_counting(fabric, slots, members, "leaf")
        return
    found = level_counting(fabric, slots, members, "leaf")
    assert sum(count for _, count in found) == members
    assert all(0 < count <= slots[node] for node, count in found)
    for tier in (1, 2):
        domains = fabric.domain_of_node[tier]
        room = Counter(dict.fromkeys(domains.tolist(), 0))
        for node, count in enumerate(slots):
            room[int(domains[node])] += count
        if max(room.values()) >= members:
            assert len({int(domains[node]) for node, _ in found}) == 1
