"""Gangs shrunk in place, compared with a plain twin that tries every choice of members."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Node
from gantree.model.placements import MemberPlacement
from gantree.placement.choice.search import find
from gantree.placement.resize.elastic import (
    kept_ranks,
    resized,
    shrunk,
)
from gantree.testing import builders
from gantree.testing.pictures import picture_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples
from support.resizing import (
    TIERS,
    Counts,
    PlacedGang,
    assert_valid_at_size,
    counts_of,
    every_way,
    held_in,
    placed_as_drawn,
    random_placed_gang,
    unevenness,
    used,
    without_rank,
)


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_what_stays_of_a_gang_is_together_and_frees_whole_domains_as_no_other_choice_does(
    seed: int, runs: int
) -> None:
    placed = random_placed_gang(seed)
    if placed is None:
        return
    occupancy, job, before = placed.occupancy, placed.job, placed.placement
    members = runs * max([run.members for run in job.topology.slices] or [1])
    if members > job.members:
        return
    after = shrunk(occupancy, job, before, members)
    assert_valid_at_size(placed, resized(job, members), after)
    assert {*map(without_rank, after.members)} <= {*map(without_rank, before.members)}
    ways = every_way(occupancy, job, counts_of(occupancy, before), members)
    best = min(stays(placed, counts) for counts in ways)
    if members < job.members:
        assert stays(placed, counts_of(occupancy, after)) == best
    assert list(kept_ranks(before, after).values()) == list(range(members))


def stays(placed: PlacedGang, counts: Counts) -> tuple[object, ...]:
    """What is least: unevenness where asked, domains by tier, those of them that would be wholly free without it."""
    occupancy = placed.occupancy
    alone = occupancy.copy()
    alone.give_back("j")
    busy = tuple(
        int(free < gpus)
        for free, gpus in zip(alone.free_gpus_of_node, alone.fabric.gpus_of_node, strict=True)
    )
    held = [
        len({*held_in(occupancy, counts, tier)} - {*held_in(occupancy, busy, tier)})
        for tier in TIERS
    ]
    return unevenness(occupancy, placed.job, counts), used(occupancy, counts), tuple(held)


@pytest.mark.parametrize(
    ("members", "picture"),
    [
        (12, ["jjjjjjjj jjjj....", "........ ........"]),
        (10, ["jjjjjj.. jjjj....", "........ ........"]),
        (8, ["jjjjjjjj ........", "........ ........"]),
        (3, ["........ ........", "jjj..... ........"]),
    ],
)
def test_members_leave_such_that_whole_nodes_and_leaves_come_free(
    members: int, picture: list[str]
) -> None:
    placed = placed_as_drawn("s0/l0: n0 jjjjjjjj n1 jjjj....\ns0/l1: n2 jjj..... n3 ........", 15)
    after = shrunk(placed.occupancy, placed.job, placed.placement, members)
    placed.occupancy.give_back("j")
    placed.occupancy.take("j", after.members)
    rows = [line.split()[2::2] for line in picture_of(placed.occupancy).splitlines()]
    assert [" ".join(row) for row in rows] == picture


def test_what_stays_is_on_few_nodes_also_where_others_are_on_them() -> None:
    placed = placed_as_drawn("s0/l0: n0 jjxxxxxx n1 jjxxxxxx n2 jjjjxxxx", 8)
    after = shrunk(placed.occupancy, placed.job, placed.placement, 3)
    assert {member.node for member in after.members} == {"n2"}
    assert kept_ranks(placed.placement, after) == {4: 0, 5: 1, 6: 2}


def test_the_members_that_stay_on_a_node_have_the_best_links_among_each_other() -> None:
    links = [["SYS"] * 4 for _ in range(4)]
    for a, b in ((0, 2), (1, 3)):
        links[a][b] = links[b][a] = "NV4"
    for gpu in range(4):
        links[gpu][gpu] = "X"
    bridged = replace(builders.machine(4), links=tuple(map(tuple, links)))
    site = Cluster("c", ("node",), {"m": bridged}, (Node("n0", "m"),))
    occupancy = Occupancy(Fabric.build(site))
    job = builders.job("j", 4, 1)
    gang = tuple(MemberPlacement("worker", gpu, "n0", (gpu,)) for gpu in range(4))
    occupancy.take("j", gang)
    found = find(Occupancy(occupancy.fabric), job)
    assert found is not None
    after = shrunk(occupancy, job, replace(found, members=gang), 2)
    assert [member.gpus for member in after.members] in ([(0,), (2,)], [(1,), (3,)])
