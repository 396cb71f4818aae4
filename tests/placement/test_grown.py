"""Gangs grown in place, compared with a plain twin that tries every way to put members on nodes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Node
from gantree.model.errors import BadInput
from gantree.model.jobs import (
    Apart,
    DataNeed,
    Job,
    Role,
    Shape,
    Slices,
    Spread,
    TopologySpec,
)
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import find
from gantree.placement.resize.elastic import (
    grown,
    kept_ranks,
    resized,
)
from gantree.testing import builders
from gantree.testing.pictures import drawn, picture_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples
from support.resizing import (
    PICTURE,
    PlacedGang,
    assert_valid_at_size,
    counts_of,
    every_way,
    placed_as_drawn,
    random_placed_gang,
    unevenness,
    used,
    without_rank,
)


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_gang_grows_wherever_some_way_keeps_its_wish_and_comes_to_as_few_domains_as_any(
    seed: int, more: int
) -> None:
    placed = random_placed_gang(seed)
    if placed is None:
        return
    occupancy, job, before = placed.occupancy, placed.job, placed.placement
    members = (
        before.members[-1].rank + 1 + more * max([r.members for r in job.topology.slices] or [1])
    )
    counts_before = counts_of(occupancy, before)
    gpus = job.roles[0].shape.gpus
    most = tuple(
        here + free // gpus
        for here, free in zip(counts_before, occupancy.free_gpus_of_node.tolist(), strict=True)
    )
    ways = [
        counts
        for counts in every_way(occupancy, job, most, members)
        if all(now >= here for now, here in zip(counts, counts_before, strict=True))
    ]
    after = grown_or_never(occupancy, job, before, members)
    assert (after is not None) == bool(ways)
    if after is not None:
        assert_valid_at_size(placed, resized(job, members), after)
        found = counts_of(occupancy, after)
        keys = [(unevenness(occupancy, job, c), used(occupancy, c)) for c in ways]
        assert (unevenness(occupancy, job, found), used(occupancy, found)) == min(keys)
        assert {*map(without_rank, before.members)} <= {*map(without_rank, after.members)}


def grown_or_never(
    occupancy: Occupancy, job: Job, before: Placement, members: int
) -> Placement | None:
    """None also for sizes that never fit: more members than a spread lets into the one domain that must hold them."""
    try:
        return grown(occupancy, job, before, members)
    except BadInput:
        return None


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_old_members_keep_their_order_and_say_who_became_who(seed: int, more: int) -> None:
    placed = random_placed_gang(seed)
    if placed is None:
        return
    job, before = placed.job, placed.placement
    after = grown_or_never(placed.occupancy, job, before, job.members + more)
    if after is None:
        return
    kept = kept_ranks(before, after)
    assert list(kept) == list(range(job.members))
    assert list(kept.values()) == sorted(kept.values())
    for old, new in kept.items():
        assert without_rank(before.members[old]) == without_rank(after.members[new])


@pytest.mark.parametrize(
    ("members", "topology", "picture"),
    [
        (6, {}, ["jjjjxxxx jj......", "........ xxxx....", "........ ........"]),
        (12, {}, ["jjjjxxxx jjjjjjjj", "........ xxxx....", "........ ........"]),
        (14, {}, ["jjjjxxxx jjjjjjjj", "........ xxxxjj..", "........ ........"]),
        (14, {"required": "leaf"}, None),
        (14, {"slices": (Slices(2, "node"),)}, ["jjjjxxxx jjjjjjjj", "........ xxxxjj..", "........ ........"]),
        (8, {"spread": Spread("node", 2)}, ["jj..xxxx jj......", "jj...... xxxxjj..", "........ ........"]),
        (8, {"spread": Spread("node", 4)}, ["jjjjxxxx jjjj....", "........ xxxx....", "........ ........"]),
        (6, {"spread": Spread("node")}, ["jj..xxxx jj......", "j....... xxxxj...", "........ ........"]),
        (28, {}, ["jjjjxxxx jjjjjjjj", "........ xxxx....", "jjjjjjjj jjjjjjjj"]),
        (44, {}, None),
    ],
)  # fmt: skip
def test_new_members_come_as_near_as_there_is_room(
    members: int, topology: dict[str, object], picture: list[str] | None
) -> None:
    placed = placed_as_drawn(PICTURE, 4, **topology)
    after = grown(placed.occupancy, placed.job, placed.placement, members)
    assert (after is None) == (picture is None)
    if after is not None and picture is not None:
        assert_valid_at_size(placed, resized(placed.job, members), after)
        placed.occupancy.give_back("j")
        placed.occupancy.take("j", after.members)
        rows = [line.split()[2::2] for line in picture_of(placed.occupancy).splitlines()]
        assert [" ".join(row) for row in rows] == picture


def test_new_ranks_on_a_node_come_after_the_old_ones() -> None:
    placed = placed_as_drawn(PICTURE, 4)
    after = grown(placed.occupancy, placed.job, placed.placement, 6)
    assert after is not None
    assert kept_ranks(placed.placement, after) == {0: 0, 1: 1, 2: 4, 3: 5}


def test_a_gang_in_one_socket_grows_in_that_socket_alone() -> None:
    site = Cluster("c", ("node",), {"m": builders.machine(8)}, (Node("n0", "m"),))
    occupancy = Occupancy(Fabric.build(site))
    topology = TopologySpec(required="socket")
    job = Job("j", (Role("w", 1, Shape(gpus=1)),), topology=topology)
    member = MemberPlacement("w", 0, "n0", (5,))
    occupancy.take("j", [member])
    found = find(occupancy, job)
    assert found is not None
    before = replace(found, members=(member,))
    after = grown(occupancy, job, before, 4)
    assert after is not None
    assert {gpu for member in after.members for gpu in member.gpus} == {4, 5, 6, 7}
    assert grown(occupancy, job, before, 5) is None


@pytest.mark.parametrize(("communicates", "gpus"), [(True, [0, 1]), (False, [0, 0])])
def test_new_ranks_on_parts_of_gpus_stay_off_the_gpus_of_old_ones(
    communicates: bool, gpus: list[int]
) -> None:
    site = Cluster("c", ("node",), {"m": machine("dgx-a100")}, (Node("n0", "m"),))
    occupancy = Occupancy(Fabric.build(site))
    job = Job("j", (Role("w", 1, Shape(mig="3g.40gb")),), communicates=communicates)
    before = find(occupancy, job)
    assert before is not None
    occupancy.take("j", before.members)
    after = grown(occupancy, job, before, 2)
    assert after is not None
    assert [member.mig[0].gpu for member in after.members] == gpus
    assert_valid_at_size(PlacedGang(occupancy, job, before), resized(job, 2), after)


@pytest.mark.parametrize("strangers", [False, True])
def test_a_share_becomes_a_rank_only_where_nobody_else_is_on_its_gpu(strangers: bool) -> None:
    site = Cluster("c", ("node",), {"m": builders.machine(2)}, (Node("n0", "m"),))
    occupancy = Occupancy(Fabric.build(site))
    job = Job("j", (Role("w", 1, Shape(gpu_share=0.3, isolation="mps")),))
    before = find(occupancy, job)
    assert before is not None and before.members[0].share is not None
    occupancy.take("j", before.members)
    if strangers:
        occupancy.take("x", [replace(before.members[0], role="x")])
    after = grown(occupancy, job, before, 2)
    assert (after is None) == strangers
    if after is not None:
        assert_valid_at_size(PlacedGang(occupancy, job, before), resized(job, 2), after)
        assert list(kept_ranks(before, after)) == [0]


def test_a_gang_is_not_kept_apart_from_itself() -> None:
    occupancy = drawn("s0/l0: n0 ........ n1 ........")
    topology = TopologySpec(apart=(Apart("node", ("chat-*",)),))
    job = Job("chat-1", (Role("w", 1, Shape(gpus=1)),), topology=topology)
    before = find(occupancy, job)
    assert before is not None
    occupancy.take("0:chat-1", before.members)
    after = grown(occupancy, job, before, 2)
    assert after is not None
    assert {member.node for member in after.members} == {"n0"}
    full = grown(occupancy, job, before, 16)
    assert full is not None
    occupancy.take("1:chat-2", [MemberPlacement("w", 0, "n1", (0,))])
    assert grown(occupancy, job, before, 9) is None


def test_only_new_nodes_fetch_data() -> None:
    occupancy = Occupancy(Fabric.build(builders.cluster(leaves=1, nodes=2)))
    job = replace(builders.job("j", 1, 4), data=(DataNeed("tokens", 100.0),))
    before = find(occupancy, job)
    assert before is not None
    occupancy.take("j", before.members)
    here, there = (grown(occupancy, job, before, members) for members in (2, 4))
    assert here is not None and there is not None
    assert here.fetch_s == 0.0 < there.fetch_s


def test_members_without_gpus_that_hold_the_same_are_told_apart_by_their_order() -> None:
    occupancy = Occupancy(Fabric.build(builders.cluster(leaves=1, nodes=1)))
    job = Job("j", (Role("w", 2, Shape(cpus=1)),))
    before = find(occupancy, job)
    assert before is not None
    occupancy.take("j", before.members)
    after = grown(occupancy, job, before, 4)
    assert after is not None
    assert kept_ranks(before, after) == {0: 0, 1: 1}
    assert kept_ranks(after, before) == {0: 0, 1: 1}


def test_the_gpu_model_of_the_old_members_is_taken_first() -> None:
    machines = {name: machine(name) for name in ("dgx-h100", "dgx-a100")}
    nodes = (Node("h0", "dgx-h100"), Node("a0", "dgx-a100"), Node("a1", "dgx-a100"))
    occupancy = Occupancy(Fabric.build(Cluster("c", ("node",), machines, nodes)))
    shape = Shape(gpus=8, models=("H100-80GB", "A100-80GB"))
    job = Job("j", (Role("w", 1, shape),))
    occupancy.mark("h0", usable=False)
    before = find(occupancy, job)
    assert before is not None
    occupancy.take("j", before.members)
    occupancy.mark("h0", usable=True)
    after = grown(occupancy, job, before, 2)
    assert after is not None and {member.node for member in after.members} == {"a0", "a1"}
    every = grown(occupancy, job, before, 3)
    assert every is not None and len(every.members) == 3
