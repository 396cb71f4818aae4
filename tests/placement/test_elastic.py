"""Elastic gangs: the best size for the room, and gangs made larger and smaller where they stand.

Growing and shrinking are held against plain twins that try every way to put members on nodes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Node
from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import (
    Apart,
    DataNeed,
    Elastic,
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
    shrunk,
)
from gantree.testing import builders
from gantree.testing.pictures import drawn, picture_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

TIERS = ("row", "rack", "node")
Counts = tuple[int, ...]
"""counts[node]."""


@dataclass(frozen=True)
class Question:
    """A gang that stands on a small cluster, beside others."""

    occupancy: Occupancy
    job: Job
    placement: Placement


def standing(seed: int) -> Question | None:
    """A gang that was placed, and around which others have come and gone since; None where it found no place."""
    rng = Random(seed)
    rows = rng.randint(1, 2)
    nodes = tuple(
        Node(f"n{number}", "m", (f"row{rng.randrange(rows)}", f"rack{rng.randrange(2)}"))
        for number in range(rng.randint(2, 5))
    )
    held = tuple(
        Allocation(f"old-{node.name}", node.name, tuple(range(taken)))
        for node in nodes
        if (taken := rng.choice([0, 1, 2, 3, 4]))
    )
    site = Cluster("c", TIERS, {"m": builders.machine(4)}, nodes, allocations=held)
    occupancy, job = Occupancy(Fabric.build(site)), gang(rng)
    placement = find(occupancy, job)
    if placement is None:
        return None
    occupancy.take("j", placement.members)
    for owner in list(occupancy.owners):
        if owner != "j" and rng.random() < 0.6:
            occupancy.give_back(owner)
    for node in nodes:
        free = occupancy.free_gpus(node.name)
        if free and rng.random() < 0.3:
            occupancy.take(f"new-{node.name}", [MemberPlacement("x", 0, node.name, free[:1])])
    return Question(occupancy, job, placement)


def gang(rng: Random) -> Job:
    """One role of up to six members, with requests."""
    run = rng.choice([1, 1, 2, 2, 3])
    runs = rng.randint(1, 6 // run)
    slices = (Slices(run, rng.choice(TIERS)),) if run > 1 else ()
    spread = Spread(rng.choice(TIERS), rng.choice([None, run, run * 2]))
    topology = TopologySpec(
        required=rng.choice([None, None, *TIERS]),
        slices=slices,
        spread=spread if rng.random() < 0.4 else None,
    )
    gpus = rng.choice([1, 1, 2])
    return Job("j", (Role("w", run * runs, Shape(gpus=gpus)),), topology=topology)


def domain(occupancy: Occupancy, node: int, tier: str) -> tuple[str, ...]:
    there = occupancy.fabric.nodes[node]
    return (*there.at, there.name)[: TIERS.index(tier) + 1]


def held_in(occupancy: Occupancy, counts: Counts, tier: str) -> Counter[tuple[str, ...]]:
    held = Counter[tuple[str, ...]]()
    for node, here in enumerate(counts):
        if here:
            held[domain(occupancy, node, tier)] += here
    return held


def keeps(occupancy: Occupancy, topology: TopologySpec, counts: Counts) -> Iterator[bool]:
    """Whether each request that must hold does."""
    if topology.required:
        yield len(held_in(occupancy, counts, topology.required)) <= 1
    for run in topology.slices:
        held = held_in(occupancy, counts, run.required)
        yield all(count % run.members == 0 for count in held.values())
    if topology.spread and topology.spread.at_most:
        most = topology.spread.at_most
        yield max(held_in(occupancy, counts, topology.spread.tier).values(), default=0) <= most


def unevenness(occupancy: Occupancy, job: Job, counts: Counts) -> int:
    """Sum of the squares of the members in each domain, where the gang is to be spread evenly; else 0."""
    spread = job.topology.spread
    if spread is None or spread.at_most is not None:
        return 0
    return sum(count**2 for count in held_in(occupancy, counts, spread.tier).values())


def used(occupancy: Occupancy, counts: Counts) -> Counts:
    return tuple(len(held_in(occupancy, counts, tier)) for tier in TIERS)


def counts_of(occupancy: Occupancy, placement: Placement) -> Counts:
    held = Counter(member.node for member in placement.members)
    return tuple(held[node.name] for node in occupancy.fabric.nodes)


def every_way(occupancy: Occupancy, job: Job, most: Counts, members: int) -> Iterator[Counts]:
    for counts in product(*(range(count + 1) for count in most)):
        if sum(counts) == members and all(keeps(occupancy, job.topology, counts)):
            yield counts


def judged(question: Question, job: Job, after: Placement) -> None:
    """The gang at its new size is a valid place of its job, on an occupancy without the gang, and can be taken."""
    occupancy = question.occupancy.copy()
    occupancy.give_back("j")
    assert problems_of(occupancy, job, after) == []
    occupancy.take("j", after.members)
    occupancy.check()


def without_rank(member: MemberPlacement) -> MemberPlacement:
    return replace(member, rank=0)


# ----- growing


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_gang_grows_wherever_some_way_keeps_its_wish_and_comes_to_as_few_domains_as_any(
    seed: int, more: int
) -> None:
    question = standing(seed)
    if question is None:
        return
    occupancy, job, before = question.occupancy, question.job, question.placement
    members = (
        before.members[-1].rank + 1 + more * max([r.members for r in job.topology.slices] or [1])
    )
    stands = counts_of(occupancy, before)
    gpus = job.roles[0].shape.gpus
    most = tuple(
        here + free // gpus
        for here, free in zip(stands, occupancy.free_gpus_of_node.tolist(), strict=True)
    )
    ways = [
        counts
        for counts in every_way(occupancy, job, most, members)
        if all(now >= here for now, here in zip(counts, stands, strict=True))
    ]
    after = grown_or_never(occupancy, job, before, members)
    assert (after is not None) == bool(ways)
    if after is not None:
        judged(question, resized(job, members), after)
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
    question = standing(seed)
    if question is None:
        return
    job, before = question.job, question.placement
    after = grown_or_never(question.occupancy, job, before, job.members + more)
    if after is None:
        return
    kept = kept_ranks(before, after)
    assert list(kept) == list(range(job.members))
    assert list(kept.values()) == sorted(kept.values())
    for old, new in kept.items():
        assert without_rank(before.members[old]) == without_rank(after.members[new])


STANDS = """s0/l0: n0 jj..xxxx n1 jj......
            s0/l1: n2 ........ n3 xxxx....
            s1/l2: n4 ........ n5 ........"""


def stands(picture: str, members: int, **request: object) -> Question:
    """A gang of one GPU a member that stands where the picture has a j."""
    occupancy = drawn(picture)
    topology = TopologySpec(**request)  # type: ignore[arg-type]  # fields of TopologySpec, named by the tests
    job = Job("j", (Role("w", members, Shape(gpus=1)),), topology=topology)
    held = occupancy.owners["j"]
    in_order = sorted(held, key=lambda member: occupancy.fabric.index_of_node[member.node])
    one_by_one = [(member.node, gpu) for member in in_order for gpu in member.gpus]
    occupancy.give_back("j")
    gang = tuple(
        MemberPlacement("w", rank, node, (gpu,)) for rank, (node, gpu) in enumerate(one_by_one)
    )
    occupancy.take("j", gang)
    placement = find(drawn("s0/l0: n0 ........"), builders.job("any"))
    assert placement is not None
    return Question(occupancy, job, replace(placement, members=gang))


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
    question = stands(STANDS, 4, **topology)
    after = grown(question.occupancy, question.job, question.placement, members)
    assert (after is None) == (picture is None)
    if after is not None and picture is not None:
        judged(question, resized(question.job, members), after)
        question.occupancy.give_back("j")
        question.occupancy.take("j", after.members)
        rows = [line.split()[2::2] for line in picture_of(question.occupancy).splitlines()]
        assert [" ".join(row) for row in rows] == picture


def test_new_ranks_on_a_node_come_after_the_old_ones() -> None:
    question = stands(STANDS, 4)
    after = grown(question.occupancy, question.job, question.placement, 6)
    assert after is not None
    assert kept_ranks(question.placement, after) == {0: 0, 1: 1, 2: 4, 3: 5}


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
    judged(Question(occupancy, job, before), resized(job, 2), after)


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
        judged(Question(occupancy, job, before), resized(job, 2), after)
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


# ----- shrinking


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_what_stays_of_a_gang_is_together_and_frees_whole_domains_as_no_other_choice_does(
    seed: int, runs: int
) -> None:
    question = standing(seed)
    if question is None:
        return
    occupancy, job, before = question.occupancy, question.job, question.placement
    members = runs * max([run.members for run in job.topology.slices] or [1])
    if members > job.members:
        return
    after = shrunk(occupancy, job, before, members)
    judged(question, resized(job, members), after)
    assert {*map(without_rank, after.members)} <= {*map(without_rank, before.members)}
    ways = every_way(occupancy, job, counts_of(occupancy, before), members)
    best = min(stays(question, counts) for counts in ways)
    if members < job.members:
        assert stays(question, counts_of(occupancy, after)) == best
    assert list(kept_ranks(before, after).values()) == list(range(members))


def stays(question: Question, counts: Counts) -> tuple[object, ...]:
    """What is least: unevenness where asked, domains by tier, those of them that would be wholly free without it."""
    occupancy = question.occupancy
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
    return unevenness(occupancy, question.job, counts), used(occupancy, counts), tuple(held)


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
    question = stands("s0/l0: n0 jjjjjjjj n1 jjjj....\ns0/l1: n2 jjj..... n3 ........", 15)
    after = shrunk(question.occupancy, question.job, question.placement, members)
    question.occupancy.give_back("j")
    question.occupancy.take("j", after.members)
    rows = [line.split()[2::2] for line in picture_of(question.occupancy).splitlines()]
    assert [" ".join(row) for row in rows] == picture


def test_what_stays_is_on_few_nodes_also_where_others_are_on_them() -> None:
    question = stands("s0/l0: n0 jjxxxxxx n1 jjxxxxxx n2 jjjjxxxx", 8)
    after = shrunk(question.occupancy, question.job, question.placement, 3)
    assert {member.node for member in after.members} == {"n2"}
    assert kept_ranks(question.placement, after) == {4: 0, 5: 1, 6: 2}


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


def test_growing_and_shrinking_to_the_size_it_has_changes_nothing() -> None:
    question = stands(STANDS, 4)
    for change in (grown, shrunk):
        assert change(question.occupancy, question.job, question.placement, 4) is question.placement


def test_sizes_that_cannot_be_are_bad_input() -> None:
    question = stands(STANDS, 4, slices=(Slices(2, "node"),))
    occupancy, job, placement = question.occupancy, question.job, question.placement
    with pytest.raises(BadInput, match="it has 4: `shrunk`"):
        grown(occupancy, job, placement, 2)
    with pytest.raises(BadInput, match="it has 4: `grown`"):
        shrunk(occupancy, job, placement, 6)
    with pytest.raises(BadInput, match="do not divide into slices of 2"):
        shrunk(occupancy, job, placement, 3)
    with pytest.raises(BadInput, match="allowed: 2 to 4, as elastic says"):
        grown(occupancy, replace(job, elastic=Elastic(2, 4)), placement, 6)
    with pytest.raises(BadInput, match="1 member or more"):
        shrunk(occupancy, job, placement, 0)


def test_boxes_and_gangs_of_several_roles_are_not_resized_in_place() -> None:
    question = stands(STANDS, 4)
    box = replace(question.job, topology=TopologySpec(box=()))
    with pytest.raises(Unsupported, match="slice of a torus"):
        grown(question.occupancy, box, question.placement, 6)
    two = replace(question.job, roles=(*question.job.roles, Role("v", 1, Shape())))
    with pytest.raises(Unsupported, match="2 roles"):
        shrunk(question.occupancy, two, question.placement, 2)
