"""Defragmentation against its plain twin: every set of gangs to move, and every place for each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.errors import Unsupported
from gantree.model.jobs import Apart, Job, Role, Shape, Slices, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import place
from gantree.placement.optimum.moves import Movable, Moves, defragmented
from gantree.testing.builders import job
from gantree.testing.pictures import drawn, picture_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

pytest.importorskip("ortools", reason="OR-Tools is an extra")


@dataclass(frozen=True)
class Asked:
    """A cluster on which gangs run that may move, and one that wants a place."""

    occupancy: Occupancy
    movable: tuple[Movable, ...]
    wanted: Job


@st.composite
def questions(draw: st.DrawFn) -> Asked:
    """Hypothesis chooses the seed only."""
    return random_question(Random(draw(st.integers(0, 2**32 - 1))))


def random_question(rng: Random) -> Asked:
    """Two to four nodes of four GPUs in two racks, up to four small gangs on them, and a wanted one."""
    nodes = tuple(
        Node(f"n{n}", "m4", (f"r{rng.choice([0, 1])}",)) for n in range(rng.randint(2, 4))
    )
    machines = {"m4": Machine("m4", 4, cpus=8.0)}
    occupancy = Occupancy(Fabric.build(Cluster("small", ("rack", "node"), machines, nodes)))
    for node in nodes:
        if rng.random() < 0.3:
            occupancy.take(f"fixed-{node.name}", (MemberPlacement("w", 0, node.name, (3,)),))
    movable = []
    for number in range(rng.randint(1, 4)):
        gang = random_gang(rng, f"old{number}")
        spread = rng.choice([*every_placement(occupancy, gang)] or [None])
        if spread is not None:
            occupancy.take(gang.name, spread)
            movable.append(Movable(gang.name, gang, rng.choice([0.0, 1.0, 5.0, 12.5])))
    return Asked(occupancy, tuple(movable), random_gang(rng, "wanted"))


def random_gang(rng: Random, name: str) -> Job:
    """One to three members, sometimes in one rack or in pairs."""
    members = rng.randint(1, 3)
    shape = Shape(gpus=rng.choice([1, 2, 2, 4]), cpus=rng.choice([0.0, 0.0, 3.0]))
    required = rng.choice([None, None, "rack", "node"])
    slices = (Slices(2, "node"),) if members == 2 and rng.random() < 0.3 else ()
    return Job(name, (Role("w", members, shape),), topology=TopologySpec(required, None, slices))


def every_placement(occupancy: Occupancy, gang: Job) -> Iterator[tuple[MemberPlacement, ...]]:
    """Members of one role on nodes in every way that is free and keeps the request; any GPUs are as good as others."""
    role = gang.roles[0]
    for members in _members(occupancy, role, 0, 0):
        placement = Placement(members, None, None)  # type: ignore[arg-type]  # the judge reads members only
        if not problems_of(occupancy, gang, placement):
            yield members


def _members(
    occupancy: Occupancy, role: Role, node: int, rank: int
) -> Iterator[tuple[MemberPlacement, ...]]:
    if rank == role.members:
        yield ()
        return
    for at in range(node, len(occupancy.fabric.nodes)):
        name = occupancy.fabric.nodes[at].name
        member = MemberPlacement(
            "w", rank, name, occupancy.free_gpus(name)[: role.shape.gpus], (), role.shape.cpus
        )
        if len(member.gpus) == role.shape.gpus and not occupancy.missing((member,)):
            left = occupancy.copy()
            left.take("trial", (member,))
            for others in _members(left, role, at, rank + 1):
                yield (member, *others)


def cheapest(asked: Asked) -> float | None:
    """The least cost of any set of gangs that may be moved such that all of them and the wanted one fit."""
    costs = []
    for count in range(len(asked.movable) + 1):
        for moved in combinations(asked.movable, count):
            left = asked.occupancy.copy()
            for gang in moved:
                left.give_back(gang.owner)
            if all_fit(left, [asked.wanted, *(gang.job for gang in moved)]):
                costs.append(sum(gang.cost_gpu_s for gang in moved))
    return min(costs, default=None)


def all_fit(occupancy: Occupancy, gangs: Sequence[Job]) -> bool:
    if not gangs:
        return True
    for members in every_placement(occupancy, gangs[0]):
        left = occupancy.copy()
        left.take(gangs[0].name, members)
        if all_fit(left, gangs[1:]):
            return True
    return False


def carried_out(occupancy: Occupancy, wanted: Job, plan: Moves) -> Occupancy:
    """The occupancy after a plan: all that move stop, then all start; every place is judged."""
    after = occupancy.copy()
    for move in plan.moves:
        after.give_back(move.owner)
    after.take(wanted.name, plan.placement.members)
    for move in plan.moves:
        after.take(move.owner, move.placement.members)
    after.check()
    return after


@settings(max_examples=examples(60))
@given(questions())
def test_a_plan_is_found_exactly_where_one_exists_and_none_is_cheaper(asked: Asked) -> None:
    before = picture_of(asked.occupancy)

    plan = defragmented(asked.occupancy, asked.movable, asked.wanted)

    least = cheapest(asked)
    assert picture_of(asked.occupancy) == before
    if plan is None:
        assert least is None
        return
    assert plan.proven
    assert plan.cost_gpu_s == least
    carried_out(asked.occupancy, asked.wanted, plan)
    emptied = asked.occupancy.copy()
    job_of = {gang.owner: gang.job for gang in asked.movable}
    for move in plan.moves:
        emptied.give_back(move.owner)
    for gang, placement in [
        (asked.wanted, plan.placement),
        *((job_of[move.owner], move.placement) for move in plan.moves),
    ]:
        assert problems_of(emptied, gang, placement) == []


def test_the_cheaper_of_two_gangs_moves_and_only_as_far_as_it_must() -> None:
    occupancy = drawn("""
        s0/l0: n0 aa...... n1 bb......
        s0/l1: n2 cccccc.. n3 cccccc..
    """)
    movable = [
        Movable("a", job("a", 1, 2), cost_gpu_s=300.0),
        Movable("b", job("b", 1, 2), cost_gpu_s=100.0),
    ]
    wanted = job("wanted", 1, 8)
    assert not isinstance(place(occupancy, wanted), Placement)

    plan = defragmented(occupancy, movable, wanted)

    assert plan is not None
    assert plan.cost_gpu_s == 100.0
    assert [move.owner for move in plan.moves] == ["b"]
    assert [member.node for member in plan.placement.members] == ["n1"]


def test_a_gang_that_fits_moves_nobody() -> None:
    occupancy = drawn("s0/l0: n0 aa...... n1 ........")
    plan = defragmented(occupancy, [Movable("a", job("a", 1, 2), 0.0)], job("wanted", 1, 8))
    assert plan is not None
    assert plan.moves == ()
    assert plan.cost_gpu_s == 0.0


def test_one_gang_makes_room_for_another_that_makes_room_for_the_wanted_one() -> None:
    occupancy = drawn("""
        s0/l0: n0 aaaaaaab n1 cc......
        s0/l1: n2 ddddddd. n3 dddddd.b
    """)
    b, c = Movable("b", job("b", 2, 1), 10.0), Movable("c", job("c", 1, 2), 20.0)
    wanted = job("wanted", 1, 8)
    assert defragmented(occupancy, [b], wanted) is None
    assert defragmented(occupancy, [c], wanted) is None

    plan = defragmented(occupancy, [b, c], wanted)

    assert plan is not None
    assert {move.owner for move in plan.moves} == {"b", "c"}
    assert plan.cost_gpu_s == 30.0


def test_a_gang_that_must_be_apart_from_others_is_not_planned_for() -> None:
    occupancy = drawn("s0/l0: n0 aa...... n1 ........")
    topology = TopologySpec(apart=(Apart("leaf", ("b",)),))
    shy = Job("a", (Role("w", 1, Shape(gpus=2)),), topology=topology)
    with pytest.raises(Unsupported, match=r"job a: topology\.apart.*leave this gang out"):
        defragmented(occupancy, [Movable("a", shy, 1.0)], job("wanted", 1, 8))
