"""Elastic gangs that give members back for another one, and that grow where it pays."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.jobs import Elastic, Job
from gantree.model.placements import Domain, MemberPlacement, Placement, Predicted
from gantree.placement.choice.search import find, fits
from gantree.placement.resize.elastic import resized, sizes_of
from gantree.planning.elastic.grow import plan_growth
from gantree.planning.elastic.shrink import ElasticGang, plan_shrink
from gantree.testing.builders import cluster, job
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples


def elastic_job(name: str, members: int, gpus: int, least: int, most: int) -> Job:
    return replace(job(name, members, gpus), elastic=Elastic(least, most))


def standing(occupancy: Occupancy, gang: Job) -> ElasticGang:
    """Place a gang and let it hold its place."""
    placement = find(occupancy, gang)
    assert placement is not None
    occupancy.take(gang.name, placement.members)
    return ElasticGang(gang.name, gang, placement, restart_gpu_s=60.0 * gang.gpus)


def small_fabric() -> Occupancy:
    return Occupancy(Fabric.build(cluster(leaves=2, nodes=2, gpus=4)))


def random_standing(seed: int) -> tuple[Occupancy, list[ElasticGang], Job]:
    rng = Random(seed)
    occupancy, gangs = small_fabric(), []
    for number in range(rng.randint(1, 4)):
        members = rng.randint(1, 5)
        gang = elastic_job(f"e{number}", members, rng.choice([1, 2]), 1, members)
        if rng.random() < 0.3 and members % 2 == 0:
            gang = replace(gang, topology=job("x", slices=(2, "leaf")).topology)
        if fits(occupancy, gang):
            gangs.append(standing(occupancy, gang))
    wanted = job(
        "wanted",
        rng.randint(1, 3),
        rng.choice([1, 2, 4]),
        required=rng.choice([None, "leaf", "node"]),
    )
    return occupancy, gangs, wanted


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_a_shrink_plan_is_proven_legal_and_nobody_shrinks_in_vain(seed: int) -> None:
    occupancy, gangs, wanted = random_standing(seed)
    before = dict(occupancy.owners)
    plan = plan_shrink(occupancy, wanted, gangs)
    assert dict(occupancy.owners) == before
    if plan is None:
        assert not fits(occupancy, wanted)
        return
    job_of = {gang.owner: gang.job for gang in gangs}
    after = occupancy.copy()
    for each in plan.shrunk:
        after.give_back(each.owner)
    for each in plan.shrunk:
        size = len(each.placement.members)
        asked = resized(job_of[each.owner], size)
        assert size in sizes_of(job_of[each.owner])
        assert not problems_of(after, asked, each.placement)
        after.take(each.owner, each.placement.members)
    after.take("wanted", plan.placement.members)
    after.check()
    for spared in plan.shrunk:
        others = occupancy.copy()
        for each in plan.shrunk:
            if each is not spared:
                others.give_back(each.owner)
                others.take(each.owner, each.placement.members)
        assert not fits(others, wanted), f"{spared.owner} shrinks in vain"


def test_members_leave_the_domain_that_is_wanted_and_only_as_many_as_it_takes() -> None:
    """The gang is on both leaves; a gang that needs a node of the second one gets it, and no more."""
    occupancy = small_fabric()
    gang = standing(occupancy, elastic_job("e", 16, 1, 4, 16))
    plan = plan_shrink(occupancy, job("wanted", 1, 4, required="node"), [gang])
    assert plan is not None
    (smaller,) = plan.shrunk
    assert len(smaller.placement.members) == 12
    assert {member.node for member in plan.placement.members}.isdisjoint(
        member.node for member in smaller.placement.members
    )
    assert smaller.lost_gpus > 0
    assert smaller.restart_gpu_s == 960.0


def test_one_gang_shrinks_rather_than_two_and_the_one_of_the_least_right() -> None:
    occupancy = small_fabric()
    gangs = [standing(occupancy, elastic_job(f"e{n}", 4, 2, 1, 4)) for n in range(2)]
    ranked = [replace(gangs[0], right=(1.0,)), replace(gangs[1], right=(0.0,))]
    plan = plan_shrink(occupancy, job("wanted", 1, 4), ranked)
    assert plan is not None
    assert [each.owner for each in plan.shrunk] == ["e1"]
    assert plan_shrink(occupancy, job("wanted", 4, 4), ranked) is None


def test_a_gang_of_the_least_right_keeps_its_members_where_they_would_not_help() -> None:
    """The small one shares its node with another job, so what it gives back makes no whole node."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=6, gpus=4)))
    gangs = []
    for number, nodes in enumerate([(0,), (1, 2), (3, 4)]):
        held = [(node, gpu) for node in nodes for gpu in range(2 if number == 0 else 4)]
        gang = elastic_job(f"e{number}", len(held), 1, len(held) // 2, len(held))
        members = tuple(
            MemberPlacement("worker", rank, f"n{node}", (gpu,))
            for rank, (node, gpu) in enumerate(held)
        )
        occupancy.take(gang.name, members)
        place = Placement(members, Domain("node", "n0"), Predicted(0.0, ()))
        gangs.append(ElasticGang(gang.name, gang, place, right=(float(number),)))
    occupancy.take("beside", (MemberPlacement("w", 0, "n0", (2, 3)),))
    occupancy.take("wall", (MemberPlacement("w", 0, "n5", (0, 1, 2, 3)),))
    plan = plan_shrink(occupancy, job("wanted", 2, 4), gangs)
    assert plan is not None
    assert sorted(each.owner for each in plan.shrunk) == ["e1", "e2"]


def held_as(gang: Job, nodes: str) -> ElasticGang:
    """A gang with a GPU for each digit, the number of its node."""
    used = dict.fromkeys(nodes, 0)
    members = []
    for rank, node in enumerate(nodes):
        members.append(MemberPlacement("worker", rank, f"n{node}", (used[node],)))
        used[node] += 1
    place = Placement(tuple(members), Domain("fabric", ""), Predicted(0.0, ()))
    return ElasticGang(gang.name, gang, place)


def test_members_leave_the_leaf_that_is_wanted_and_not_another_one() -> None:
    """Another job is on the first leaf, so that only the second one can hold the wanted gang."""
    occupancy = small_fabric()
    occupancy.take("wall", (MemberPlacement("w", 0, "n0", (0, 1)),))
    gang = held_as(elastic_job("e", 12, 1, 4, 12), "111122223333")
    occupancy.take("e", gang.placement.members)
    plan = plan_shrink(occupancy, job("wanted", 2, 4, required="leaf"), [gang])
    assert plan is not None
    assert {member.node for member in plan.placement.members} == {"n2", "n3"}
    assert {member.node for member in plan.shrunk[0].placement.members} == {"n1"}


def test_slices_stay_whole_where_members_leave() -> None:
    """The emptiest nodes alone would leave one member of a pair on each leaf."""
    occupancy = small_fabric()
    pairs = job("x", slices=(2, "leaf")).topology
    gang = held_as(replace(elastic_job("e", 8, 1, 4, 8), topology=pairs), "00012222")
    occupancy.take("e", gang.placement.members)
    occupancy.take("beside", (MemberPlacement("w", 0, "n1", (1, 2, 3)),))
    occupancy.take("wall", (MemberPlacement("w", 0, "n3", (0, 1, 2, 3)),))
    plan = plan_shrink(occupancy, job("wanted", 1, 4), [gang])
    assert plan is not None
    (smaller,) = plan.shrunk
    occupancy.give_back("e")
    asked = resized(gang.job, len(smaller.placement.members))
    assert not problems_of(occupancy, asked, smaller.placement)


def test_nobody_shrinks_below_what_the_caller_says() -> None:
    occupancy = small_fabric()
    gang = standing(occupancy, elastic_job("e", 4, 4, 1, 4))
    assert plan_shrink(occupancy, job("wanted", 1, 4), [replace(gang, least=4)]) is None
    plan = plan_shrink(occupancy, job("wanted", 1, 4), [replace(gang, least=3)])
    assert plan is not None
    assert len(plan.shrunk[0].placement.members) == 3


def grown_from(
    size: int,
    room_for: int,
    *,
    horizon_s: float,
    restart_gpu_s: float = 0.0,
    most: int | None = None,
) -> Placement | None:
    """A gang of 2-GPU members that never talk, with idle room for so many more."""
    occupancy = small_fabric()
    gang = replace(elastic_job("e", size, 2, 1, 8), communicates=False)
    held = standing(occupancy, gang)
    for number in range(8 - size - room_for):
        filler = find(occupancy, job(f"f{number}", 1, 2))
        assert filler is not None
        occupancy.take(f"f{number}", filler.members)
    growth = plan_growth(
        occupancy, gang, held.placement, most=most, horizon_s=horizon_s, restart_gpu_s=restart_gpu_s
    )
    return None if growth is None else growth.placement


def test_a_gang_grows_into_all_idle_room_where_that_pays() -> None:
    larger = grown_from(2, 3, horizon_s=3600.0, restart_gpu_s=240.0)
    assert larger is not None
    assert len(larger.members) == 5


def test_a_gang_does_not_grow_for_less_than_its_new_start_costs() -> None:
    """Three more members of two GPUs bring 6 GPU-seconds a second."""
    assert grown_from(2, 3, horizon_s=40.0, restart_gpu_s=240.0) is None
    assert grown_from(2, 3, horizon_s=41.0, restart_gpu_s=240.0) is not None


def test_a_gang_grows_no_further_than_it_may() -> None:
    larger = grown_from(2, 3, horizon_s=3600.0, most=3)
    assert larger is not None
    assert len(larger.members) == 3
    assert grown_from(2, 0, horizon_s=3600.0) is None


def test_old_members_stay_where_they_are() -> None:
    occupancy = small_fabric()
    gang = elastic_job("e", 2, 2, 1, 4)
    held = standing(occupancy, gang)
    found = plan_growth(occupancy, gang, held.placement, horizon_s=1e6)
    assert found is not None

    def places(members: tuple[MemberPlacement, ...]) -> set[tuple[str, tuple[int, ...]]]:
        return {(member.node, member.gpus) for member in members}

    assert places(held.placement.members) <= places(found.placement.members)
    assert found.gain_gpu_s > 0
