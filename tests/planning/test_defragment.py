"""Moves that make room: proven on a copy, no dearer than they are worth, and close to the solver's."""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import Unsupported
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement
from gantree.placement.choice.search import find, fits
from gantree.planning.defragmentation import Movable, MovePlan, plan_defragment
from gantree.testing.builders import cluster, job
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

FACTOR = 4.0
"""The heuristic costs at most so many times what the solver's plan does here (docs/least-harm.md has the mean)."""


@dataclass(frozen=True)
class Asked:
    """Gangs that may move, and one that wants a place."""

    occupancy: Occupancy
    movable: tuple[Movable, ...]
    wanted: Job

    def plan(self, gain_gpu_s: float = 1e9, exact_s: float = 0.0) -> MovePlan | None:
        return plan_defragment(
            self.occupancy, self.wanted, self.movable, gain_gpu_s=gain_gpu_s, exact_s=exact_s
        )


def asked_at_random(seed: int, spread: float = 0.5) -> Asked:
    """Gangs came and went, so that what is left lies scattered."""
    rng = Random(seed)
    occupancy = Occupancy(Fabric.build(cluster(leaves=2, nodes=2, gpus=4)))
    movable = []
    for number in range(10):
        gang = job(f"j{number}", rng.choice([1, 1, 2]), rng.choice([1, 2]))
        found = find(occupancy, gang)
        if found is not None:
            occupancy.take(gang.name, found.members)
            movable.append(Movable(gang.name, gang, float(rng.choice([0, 10, 25, 60]))))
    stay = [each for each in movable if rng.random() < spread]
    for each in movable:
        if each not in stay:
            occupancy.give_back(each.owner)
    wanted = job(
        "wanted", rng.randint(1, 2), rng.choice([2, 4]), required=rng.choice([None, "leaf"])
    )
    return Asked(occupancy, tuple(stay), wanted)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_a_plan_carried_out_in_one_go_is_valid_and_costs_less_than_it_gains(seed: int) -> None:
    asked = asked_at_random(seed)
    before = dict(asked.occupancy.owners)
    plan = asked.plan(gain_gpu_s=50.0)
    assert dict(asked.occupancy.owners) == before
    if plan is None:
        assert not fits(asked.occupancy, asked.wanted)
        return
    job_of = {gang.owner: gang.job for gang in asked.movable}
    cost_of = {gang.owner: gang.cost_gpu_s for gang in asked.movable}
    after = asked.occupancy.copy()
    for move in plan.moves:
        after.give_back(move.owner)
    assert not problems_of(after, asked.wanted, plan.placement)
    after.take("wanted", plan.placement.members)
    for move in plan.moves:
        assert not problems_of(after, job_of[move.owner], move.placement)
        after.take(move.owner, move.placement.members)
    after.check()
    assert plan.cost_gpu_s == sum(cost_of[move.owner] for move in plan.moves)
    assert plan.cost_gpu_s < plan.gain_gpu_s == 50.0


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(10), deadline=None)
def test_the_heuristic_finds_nothing_that_the_solver_disproves_and_little_that_is_dearer(
    seed: int,
) -> None:
    pytest.importorskip("ortools", reason="OR-Tools is an extra")
    asked = asked_at_random(seed)
    quick, exact = asked.plan(), asked.plan(exact_s=1.0)
    if quick is None or not quick.moves:
        return
    assert exact is not None
    assert exact.cost_gpu_s <= quick.cost_gpu_s
    assert quick.cost_gpu_s <= FACTOR * exact.cost_gpu_s + 60.0


def scattered() -> Asked:
    """Two nodes with half of their GPUs free each, and a gang that wants a whole one."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=2, gpus=4)))
    for node in range(2):
        occupancy.take(f"j{node}", (MemberPlacement("worker", 0, f"n{node}", (0, 1)),))
    movable = (Movable("j0", job("j0", 1, 2), 30.0), Movable("j1", job("j1", 1, 2), 20.0))
    return Asked(occupancy, movable, job("wanted", 1, 4))


def test_the_gang_that_moves_at_the_least_cost_moves() -> None:
    """volcano#3948: four GPUs are free, two on each node; the cheaper job moves over."""
    plan = scattered().plan(gain_gpu_s=21.0)
    assert plan is not None
    assert [(move.owner, move.placement.members[0].node) for move in plan.moves] == [("j1", "n0")]
    assert {member.node for member in plan.placement.members} == {"n1"}


def test_nobody_moves_for_less_than_it_costs() -> None:
    """KAI#146: consolidation that throws away more training than it wins."""
    assert scattered().plan(gain_gpu_s=20.0) is None


def test_nobody_moves_who_has_no_place_to_go() -> None:
    asked = scattered()
    asked.occupancy.take("wall", (MemberPlacement("w", 0, "n0", (2,)),))
    plan = asked.plan()
    assert plan is None


def test_a_gang_that_has_to_leave_may_make_another_one_move() -> None:
    """The pair fits only where a single GPU is in the way, and that one fits elsewhere."""
    occupancy = Occupancy(Fabric.build(cluster(leaves=1, nodes=3, gpus=4)))
    for owner, node, gpus in (
        ("pair", "n0", (0, 1)),
        ("one", "n1", (0,)),
        ("two", "n1", (1, 2)),
        ("wall", "n2", (0, 1, 2)),
    ):
        occupancy.take(owner, (MemberPlacement("worker", 0, node, gpus),))
    movable = (Movable("pair", job("pair", 1, 2), 5.0), Movable("one", job("one", 1, 1), 3.0))
    plan = Asked(occupancy, movable, job("wanted", 1, 4)).plan()
    assert plan is not None
    assert {move.owner: move.placement.members[0].node for move in plan.moves} == {
        "pair": "n1",
        "one": "n2",
    }
    assert plan.cost_gpu_s == 8.0


def test_without_the_solver_the_heuristic_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise Unsupported("no OR-Tools")

    monkeypatch.setattr("gantree.placement.optimum.moves.cp_model", missing)
    plan = scattered().plan(exact_s=1.0)
    assert plan is not None
    assert not plan.proven
