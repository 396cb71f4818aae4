"""Which sizes an elastic gang may have, and which of them is best for the room there is."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Link, Node, Torus
from gantree.model.errors import BadInput
from gantree.model.jobs import (
    AxisTraffic,
    Elastic,
    Job,
    Role,
    Shape,
    Slices,
    TopologySpec,
    Traffic,
    Transformer,
)
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import find
from gantree.placement.request.sizes import ALIKE, MOST_PRICED, UNTOLD_COMM_SHARE
from gantree.placement.resize.elastic import best_size, placed_elastically, resized, sizes_of
from gantree.testing import builders
from gantree.testing.pictures import drawn
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

LLAMA = Transformer(7e9, 32, 4096, sequence=4096, batch=96)
DGX = machine("dgx-h100")


def elastic(members: int, least: int, most: int, gpus: int = 1, **fields: object) -> Job:
    job = Job("j", (Role("w", members, Shape(gpus=gpus)),), elastic=Elastic(least, most))
    return replace(job, **fields)  # type: ignore[arg-type]  # fields of Job, named by the tests


def sliced(members: int, tier: str) -> TopologySpec:
    return TopologySpec(slices=(Slices(members, tier),))


# ----- which sizes


@pytest.mark.parametrize(
    ("job", "sizes"),
    [
        (elastic(4, 2, 6), (2, 3, 4, 5, 6)),
        (replace(elastic(4, 2, 6), elastic=None), (4,)),
        (elastic(4, 1, 7, topology=sliced(2, "leaf")), (2, 4, 6)),
        (elastic(4, 1, 8, gpus=2, parallelism=(("tensor", 4),)), (2, 4, 6, 8)),
        (elastic(8, 1, 12, parallelism=(("tensor", 4), ("data", 2))), (4, 8, 12)),
        (elastic(8, 1, 16, parallelism=(("expert", 2), ("data", 8))), (2, 4, 6, 8, 10, 12, 14, 16)),
        (elastic(8, 1, 10, trains=LLAMA), (1, 2, 3, 4, 6, 8)),
        (elastic(6, 2, 8, gpus=8, parallelism=(("tensor", 8), ("data", 3))), (2, 4, 6, 8)),
        (elastic(4, 2, 6, parallelism=(("tensor", 3),)), (2, 3, 4, 5, 6)),
        (elastic(4, 2, 6, topology=TopologySpec(box=(2, 2))), (4,)),
        (elastic(2, 1, 4, roles=(Role("a", 1, Shape()), Role("b", 1, Shape()))), (2,)),
    ],
    ids=[
        "every size between min and max",
        "not elastic",
        "whole slices",
        "whole tensor groups",
        "whole data ways",
        "expert ways divide data ways",
        "the batch divides evenly",
        "whole data ways, though the ways as written are half of the GPUs",
        "what does not run as written binds nothing",
        "a box of one size",
        "several roles",
    ],
)
def test_sizes_are_those_at_which_a_gang_is_whole_and_runs(
    job: Job, sizes: tuple[int, ...]
) -> None:
    assert sizes_of(job) == sizes


def test_at_another_size_data_ways_change_and_a_rank_does_its_share_of_the_batch() -> None:
    traffic = Traffic((AxisTraffic("data", 8e9), AxisTraffic("tensor", 4e9, 7)), compute_s=6.0)
    ways = (("tensor", 2), ("data", 2))
    alone = elastic(4, 1, 8, parallelism=ways, traffic=traffic)
    assert resized(alone, 4) is alone
    assert resized(alone, 8).parallelism == (("tensor", 2), ("data", 4))
    assert resized(alone, 8).traffic == traffic
    told = resized(replace(alone, trains=LLAMA), 8).traffic
    assert told == Traffic((AxisTraffic("data", 8e9), AxisTraffic("tensor", 2e9, 7)), compute_s=3.0)


def test_sizes_that_cannot_be_are_bad_input() -> None:
    with pytest.raises(BadInput, match=r"data 2 of 4 members would become 1\.5 ways"):
        resized(elastic(4, 1, 8, parallelism=(("data", 2),)), 3)
    with pytest.raises(BadInput, match="1 member or more"):
        resized(elastic(4, 1, 8), 0)
    with pytest.raises(BadInput, match="only a gang of one role"):
        resized(elastic(2, 1, 4, roles=(Role("a", 1, Shape()), Role("b", 1, Shape()))), 3)


# ----- which is best


def half_full(seed: int, nodes: int) -> Occupancy:
    """DGX nodes in leaves of four and spines of eight, some of their GPUs taken, behind links of any width."""
    rng = Random(seed)
    places = tuple(Node(f"n{n}", DGX.name, (f"s{n // 8}", f"l{n // 4}")) for n in range(nodes))
    links = {
        "leaf": Link(rng.choice([12, 25, 50]), 6),
        "spine": Link(rng.choice([4, 12, 25]), 12),
    }
    site = Cluster("c", ("spine", "leaf", "node"), {DGX.name: DGX}, places, links)
    occupancy = Occupancy(Fabric.build(site))
    for node in places:
        taken = tuple(range(rng.choice([0, 0, 2, 4, 8])))
        if taken:
            occupancy.take(f"x{node.name}", [MemberPlacement("x", 0, node.name, taken)])
    return occupancy


def drawn_job(rng: Random, most: int) -> Job:
    job = elastic(8, rng.choice([1, 2, 6]), most, gpus=rng.choice([1, 2, 4]))
    if rng.random() < 0.3:
        job = replace(job, topology=sliced(2, rng.choice(["node", "leaf"])))
    size = rng.choice([1e9, 1e10, 1e11])
    told: dict[str, object] = rng.choice(
        [
            {},
            {"communicates": False},
            {"trains": LLAMA},
            {"traffic": Traffic((AxisTraffic("data", size),), compute_s=0.3)},
        ]
    )
    return replace(job, **told)  # type: ignore[arg-type]  # fields of Job


def plain_goodput(job: Job, placement: Placement, fastest_s: float) -> float:
    """As the essay of `sizes` says, one size at a time."""
    members, predicted = len(placement.members), placement.predicted
    if not job.communicates:
        return members
    if predicted.step_s is None:
        slower = predicted.comm_s / fastest_s
        return members / (1 - UNTOLD_COMM_SHARE + UNTOLD_COMM_SHARE * slower)
    return (LLAMA.batch if job.trains else members) / predicted.step_s


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32 - 1))
def test_the_best_size_is_the_smallest_of_most_goodput_among_all_that_have_a_place(
    seed: int,
) -> None:
    rng = Random(seed)
    occupancy, job = half_full(seed, 16), drawn_job(rng, 16)
    places = {
        size: found for size in sizes_of(job) if (found := find(occupancy, resized(job, size)))
    }
    best = best_size(occupancy, job)
    assert (best is None) == (not places)
    if best is None:
        return
    size, placement = best
    assert placement == places[size]
    assert problems_of(occupancy, resized(job, size), placement) == []
    comms_s = [place.predicted.comm_s for place in places.values() if place.predicted.comm_s]
    fastest_s = min(comms_s, default=1.0)
    goodput = {size: plain_goodput(job, place, fastest_s) for size, place in places.items()}
    enough = max(goodput.values()) * (1 - ALIKE)
    assert size == min(size for size, here in goodput.items() if here >= enough)
    occupancy.take("j", placement.members)
    occupancy.check()


@pytest.mark.parametrize("seed", [7, 11])
def test_of_very_many_sizes_a_good_one_is_found_without_pricing_all(seed: int) -> None:
    occupancy = half_full(seed, 32)
    free = int(occupancy.free_gpus_of_node.sum())
    traffic = Traffic((AxisTraffic("data", 1e11),), compute_s=0.3)
    job = elastic(64, 1, free, traffic=traffic)
    assert len(sizes_of(job)) > MOST_PRICED
    best = best_size(occupancy, job)
    assert best is not None
    found = {size: find(occupancy, resized(job, size)) for size in sizes_of(job)}
    most = max(plain_goodput(job, place, 1.0) for place in found.values() if place is not None)
    assert plain_goodput(job, best[1], 1.0) >= 0.95 * most


def two_leaves(leaf_GBps: float) -> Occupancy:
    """Two leaves of four DGX nodes; what leaves a leaf has so much for each GPU."""
    nodes = tuple(Node(f"n{n}", DGX.name, ("s0", f"l{n // 4}")) for n in range(8))
    links = {"leaf": Link(leaf_GBps, 12, leaf_GBps * 8)}
    return Occupancy(
        Fabric.build(Cluster("c", ("spine", "leaf", "node"), {DGX.name: DGX}, nodes, links))
    )


@pytest.mark.parametrize(("leaf_GBps", "size"), [(400.0, 8), (2.0, 4)])
def test_members_beyond_a_leaf_must_pay_for_the_slower_links(leaf_GBps: float, size: int) -> None:
    best = best_size(two_leaves(leaf_GBps), elastic(4, 1, 8, gpus=8))
    assert best is not None and best[0] == size


def test_members_that_never_talk_are_as_many_as_fit() -> None:
    job = elastic(4, 1, 20, gpus=8, communicates=False)
    best = best_size(two_leaves(0.01), job)
    assert best is not None and best[0] == 8


def test_a_batch_that_is_too_small_for_more_does_not_grow() -> None:
    """With every GPU's share of the batch down to a millisecond, the all-reduce over more leaves takes longer."""
    few = replace(LLAMA, layers=32, sequence=16, batch=64)
    best = best_size(two_leaves(2.0), elastic(4, 1, 8, gpus=8, trains=few))
    assert best is not None and best[0] < 8


def test_a_gang_of_any_box_gets_the_largest_one_that_is_free() -> None:
    nodes = tuple(Node(f"t{n}", "m", ()) for n in range(16))
    torus = Torus("t", (4, 4), (1, 1), tuple(node.name for node in nodes), (False, False))
    site = Cluster("c", ("node",), {"m": builders.machine(1)}, nodes, tori=(torus,))
    occupancy = Occupancy(Fabric.build(site))
    occupancy.take("x", [MemberPlacement("x", 0, "t5", (0,))])
    job = elastic(16, 4, 16, topology=TopologySpec(box=()), communicates=False)
    best = best_size(occupancy, job)
    assert best is not None
    assert (best[0], len({member.node for member in best[1].members})) == (8, 8)
    placed, verdict = placed_elastically(occupancy, job)
    assert placed.members == 8 and isinstance(verdict, Placement)


# ----- placing


@pytest.mark.parametrize(
    ("job", "members"),
    [
        (elastic(3, 1, 9), 3),
        (elastic(6, 2, 9), 6),
        (elastic(8, 2, 9), 6),
        (elastic(8, 2, 9, topology=sliced(4, "node")), 4),
        (elastic(8, 2, 9, topology=TopologySpec(required="node")), 4),
        (elastic(8, 7, 9), None),
        (replace(elastic(8, 2, 9), elastic=None), None),
    ],
    ids=[
        "as it is written, though there is room for more",
        "as it is written, where that just fits",
        "as many as fit",
        "whole slices",
        "in the one domain that it needs",
        "not below its least",
        "not elastic",
    ],
)
def test_an_elastic_gang_is_placed_as_written_or_smaller(job: Job, members: int | None) -> None:
    occupancy = drawn("s0/l0: n0 aaaa.... n1 aaaaaa..")
    placed, verdict = placed_elastically(occupancy, job)
    if members is None:
        assert isinstance(verdict, Refused) and placed is job
        return
    assert isinstance(verdict, Placement)
    assert placed.members == members == len(verdict.members)
    assert problems_of(occupancy, placed, verdict) == []
    occupancy.take("j", verdict.members)
    occupancy.check()


@pytest.mark.parametrize(
    ("job", "never", "words"),
    [
        (elastic(8, 4, 16, topology=TopologySpec(required="node")), False, "Waiting, even with 4"),
        (elastic(30, 2, 40, gpus=4, topology=TopologySpec(required="node")), False, "even with 2"),
        (
            elastic(30, 9, 40, topology=TopologySpec(required="node")),
            True,
            "Never fits, even with 9",
        ),
        (elastic(6, 2, 8, gpus=9), True, "Never fits: a member of role w needs 9"),
        (elastic(4, 4, 8, topology=TopologySpec(required="node")), False, "Waiting: needs 4 GPUs"),
    ],
    ids=[
        "free later",
        "far larger as written",
        "never",
        "a member too large",
        "smallest is written",
    ],
)
def test_an_elastic_gang_is_refused_by_what_its_smallest_size_lacks(
    job: Job, never: bool, words: str
) -> None:
    occupancy = drawn("s0/l0: n0 aaaaaa.. n1 aaaaaa..")
    placed, verdict = placed_elastically(occupancy, job)
    assert isinstance(verdict, Refused) and placed is job
    assert (verdict.never, words in verdict.sentence) == (never, True), verdict.sentence
