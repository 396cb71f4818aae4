"""Which rank each process gets: decided with the place, recorded with it, and handed to the cluster."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.launch import start_order
from gantree.core.lifecycle.numbering import numbered
from gantree.core.scheduler import Scheduler
from gantree.journal.encoding.codec import FACT_CODEC, ORDER_CODEC, Encoded
from gantree.model.facts import GangPlaced
from gantree.model.jobs import Job, Role, Shape
from gantree.model.orders import StartGang
from gantree.model.placements import Domain, MemberPlacement, Placement, Predicted
from gantree.placement.choice.search import place
from gantree.placement.ranks import rank_order
from gantree.placement.ranks.rank_order import rank_map
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

SITE = cluster(leaves=2, nodes=2, gpus=2)
TENSOR_SLOW = (("data", 4), ("tensor", 2))
"""Counted so, member order tears every tensor group apart."""


def crossed(processes: int, members: int = 4) -> Job:
    """A job of two GPUs a member whose ranks had better not follow its members."""
    plain = job("j", members, 2, processes=processes, restarts=1)
    return replace(plain, parallelism=TENSOR_SLOW, ranks_as_written=True)


def placed(wanted: Job) -> Placement:
    found = place(Occupancy(Fabric.build(SITE)), wanted)
    assert isinstance(found, Placement)
    return found


def started(stage: Stage, job_id: str = "j") -> StartGang:
    return next(
        order
        for order in reversed(stage.orders)
        if isinstance(order, StartGang) and order.job == job_id
    )


@pytest.mark.parametrize(
    ("processes", "ranks_of_node", "node_ranks"),
    [
        (2, {"n0": (0, 4), "n1": (1, 5), "n2": (2, 6), "n3": (3, 7)}, ["n0", "n1", "n2", "n3"]),
        (1, {"n0": (0,), "n1": (2,), "n2": (1,), "n3": (3,)}, ["n0", "n2", "n1", "n3"]),
    ],
    ids=["single ranks", "whole members"],
)
def test_the_order_carries_the_ranks_that_the_map_gives(
    processes: int, ranks_of_node: dict[str, tuple[int, ...]], node_ranks: list[str]
) -> None:
    stage = Stage(SITE)
    wanted = crossed(processes)
    stage.submit(wanted)
    order = started(stage)
    assert {each.node: each.rank_of_process for each in order.members} == ranks_of_node
    by_number = sorted(order.members, key=lambda each: each.node_rank)
    assert [each.node for each in by_number] == node_ranks
    found = rank_map(Fabric.build(SITE), wanted, placed(wanted))
    for each in order.members:
        assert each.rank_of_process == found.of_member(each.role, each.rank)
    placement = stage.state("j").placement
    assert placement is not None and placement.predicted.step_s == found.step_s


@pytest.mark.parametrize(
    "wanted",
    [
        job("j", 4, 2, processes=2),
        replace(crossed(2), parallelism=(("data", 1),)),
        replace(crossed(2, members=1), parallelism=(("tensor", 2),)),
        replace(crossed(2), parallelism=(("tensor", 2), ("data", 4))),
    ],
    ids=["says nothing", "one way", "one node", "member order is best"],
)
def test_ranks_follow_the_members_where_nothing_is_gained(wanted: Job) -> None:
    stage = Stage(SITE)
    stage.submit(wanted)
    placement = stage.state("j").placement
    assert placement is not None and placement.ranks == ()
    assert [each.first_rank for each in started(stage).members] == list(
        range(0, wanted.processes, 2)
    )
    assert all(each.ranks == () for each in started(stage).members)


def test_no_map_is_asked_for_a_gang_that_does_not_say_how_it_is_parallel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(rank_order, "_decided", never)
    stage = Stage(SITE)
    stage.submit(job("j", 4, 2, processes=2))
    assert started(stage).world_size == 8


def test_the_recorded_map_holds_whatever_would_be_decided_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(SITE)
    stage.submit(crossed(2))
    stage.started("j")
    order = started(stage)
    facts = [FACT_CODEC.decode(FACT_CODEC.encode(fact)) for fact in stage.facts]
    again = Scheduler(Policy())
    monkeypatch.setattr("gantree.core.lifecycle.numbering.rank_map", None)
    again.recover(facts)
    assert again.standing_orders() == (order,)
    assert ORDER_CODEC.decode(ORDER_CODEC.encode(order)) == order


def test_a_restart_gets_a_map_of_its_new_place() -> None:
    stage = Stage(SITE)
    stage.submit(crossed(2))
    stage.started("j")
    stage.rank_failed("j")
    stage.ended("j", exit_code=1)
    stage.wait(60.0)
    assert stage.state("j").attempt == 2
    assert {each.rank_of_process for each in started(stage).members} == {
        (0, 4), (1, 5), (2, 6), (3, 7),
    }  # fmt: skip


def test_a_place_that_was_recorded_before_there_were_maps_is_read() -> None:
    fact = GangPlaced(at=1.0, job="j", attempt=1, placement=placed(job("j", 2, 2)))
    encoded = FACT_CODEC.encode(fact)
    assert '"ranks":[]' in encoded.data
    old = Encoded(encoded.kind, encoded.version, encoded.data.replace(',"ranks":[]', ""))
    assert FACT_CODEC.decode(old) == fact


ROLES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)


@given(ROLES, st.data())
def test_whatever_the_map_every_rank_is_started_once_and_rank_0_comes_first(
    sizes: Sequence[tuple[int, int]], data: st.DataObject
) -> None:
    roles = tuple(
        Role(f"r{n}", members, Shape(), processes, run=("true",))
        for n, (members, processes) in enumerate(sizes)
    )
    wanted = Job("j", roles)
    members = tuple(
        MemberPlacement(role.name, member, f"n{node}")
        for role, member, node, _ in wanted.each_member()
    )
    ranks = data.draw(st.permutations(range(wanted.processes)))
    where = Placement(members, Domain("fabric", ""), Predicted(0.0, ()), ranks=tuple(ranks))
    state = JobState("j", wanted, 0, 0, 0, 0.0, attempt=1, placement=where)
    order = start_order(state)
    assert sorted(rank for each in order.members for rank in each.rank_of_process) == sorted(ranks)
    told = {(each.role, each.rank): each.rank_of_process for each in order.members}
    assert [rank for member in members for rank in told[member.role, member.rank]] == ranks
    first = min(order.members, key=lambda each: each.node_rank)
    assert 0 in first.rank_of_process
    assert [each.node_rank for each in order.members] == list(range(len(members)))
    assert all(each.first_rank == each.ranks[0] for each in order.members)


def test_the_map_moves_ranks_and_nothing_else() -> None:
    wanted = crossed(2)
    where = placed(wanted)
    found = numbered(Fabric.build(SITE), wanted, where)
    assert found.ranks == (0, 4, 1, 5, 2, 6, 3, 7)
    assert replace(found, ranks=(), predicted=where.predicted) == where
