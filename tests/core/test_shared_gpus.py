"""Room on GPUs that several share: what a gang waits for is not lost to others while tenants leave one by one."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.facts import GangPlaced, GangPreempted
from gantree.model.jobs import Job, Role, Shape
from gantree.policy.rules import OrderKey, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples
from support.lives import Life

ONE_GPU = cluster(leaves=1, nodes=1, gpus=1)
TURNS, MPS = "time-slicing", "mps"


def sharing(
    name: str, share: float, priority: str = "batch", isolation: str = TURNS, **more: Any
) -> Job:
    """A job of one member that has a share of a GPU."""
    shape = Shape(gpu_share=share, isolation=isolation)
    return Job(name, (Role("w", 1, shape, run=("true",)),), priority=priority, **more)


def instance(name: str, profile: str, priority: str = "batch") -> Job:
    """A job of one member that has a MIG instance."""
    return Job(name, (Role("w", 1, Shape(mig=profile), run=("true",)),), priority=priority)


def whole(name: str) -> Job:
    return job(name, gpus=1, priority="serving")


def leave_one_by_one(stage: Stage, seconds: int) -> None:
    """Each second one of those who were told to leave is gone, and who was placed starts."""
    ledger = stage.scheduler.ledger
    for _ in range(seconds):
        stage.wait(1.0)
        for name in list(ledger.leaving)[:1]:
            stage.ended(name, 143)
        stage.started(*(name for name, state in ledger.holding.items() if not state.running_at))


def test_a_victim_that_left_does_not_come_back_into_the_gpu_while_another_is_leaving() -> None:
    """41 preemptions in 40 s: each victim took the share again that the other one's leaving was to complete."""
    stage = Stage(ONE_GPU)
    stage.submit(sharing("a", 0.5), sharing("b", 0.5))
    stage.started("a", "b")
    stage.submit(whole("big"))
    leave_one_by_one(stage, 40)
    assert stage.phases() == {"a": "pending", "b": "pending", "big": "running"}
    assert sum(isinstance(fact, GangPreempted) for fact in stage.facts) == 2


QUARTERS = [sharing(name, 0.25) for name in "abcd"]
SEVENTHS = [instance(name, "1g.10gb") for name in "abcdefg"]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (QUARTERS, [sharing("x", 0.75, "serving")]),
        (QUARTERS, [sharing("x", 0.25, "serving", MPS)]),
        (QUARTERS, [sharing("x", 0.5, "serving"), sharing("y", 0.5, "serving")]),
        (QUARTERS, [instance("x", "1g.10gb", "serving")]),
        (SEVENTHS, [instance("x", "3g.40gb", "serving")]),
        (SEVENTHS, [instance("x", "3g.40gb", "serving"), instance("y", "4g.40gb", "serving")]),
        (SEVENTHS[:3], [instance("x", "7g.80gb", "serving")]),
        (SEVENTHS, [whole("x")]),
    ],
)
def test_nobody_is_stopped_twice_for_a_gpu_that_tenants_leave_one_by_one(
    first: list[Job], then: list[Job]
) -> None:
    stage = Stage(ONE_GPU)
    stage.submit(*first)
    stage.started(*(each.name for each in first))
    stage.submit(*then)
    leave_one_by_one(stage, 12)
    assert all(stage.phases()[each.name] == "running" for each in then)
    stopped = [fact.job for fact in stage.facts if isinstance(fact, GangPreempted)]
    assert len(stopped) == len(set(stopped))


def test_two_claims_on_one_gpu_start_one_after_the_other() -> None:
    """The second one's hold took the share of the first one at the moment of its start: an assertion."""
    stage = Stage(ONE_GPU)
    stage.submit(sharing("a", 0.5), sharing("b", 0.5))
    stage.started("a", "b")
    stage.submit(sharing("x", 0.5, "serving"), sharing("y", 0.5, "serving"))
    stage.ended("a", 143)
    assert (stage.phases()["x"], stage.phases()["y"]) == ("starting", "pending")
    stage.ended("b", 143)
    assert stage.phases()["y"] == "starting"


def reserved() -> Life:
    """A GPU that two share, one until 50 s and one until 100 s; `big` is promised all of it then."""
    life = Life(ONE_GPU, Policy(preemption=Preemption("none"), grace_s=0.0))
    for name, limit_s in (("short", 50.0), ("long", 100.0)):
        life.submit(sharing(name, 0.5, time_limit_s=limit_s), runs_s=limit_s)
    life.submit(job("big", gpus=1, time_limit_s=50), runs_s=50)
    assert life.stage.scheduler.ledger.reservations["big"].starts_at == 100
    return life


def test_a_share_beside_a_reserved_gpu_is_given_only_to_who_is_gone_by_its_start() -> None:
    life = reserved()
    life.until(60)
    life.submit(sharing("endless", 0.25))
    life.submit(sharing("late", 0.25, time_limit_s=41))
    life.submit(sharing("passes", 0.25, time_limit_s=30), runs_s=30)
    phases = life.stage.phases()
    assert (phases["endless"], phases["late"], phases["passes"]) == (
        "pending",
        "pending",
        "running",
    )
    life.until(100)
    assert life.jobs["big"].placed_at == 100
    life.until(150)
    assert life.stage.phases()["endless"] == "running"


def test_what_passes_a_reservation_on_its_gpu_leaves_the_rest_of_it_kept() -> None:
    life = reserved()
    life.until(60)
    life.submit(sharing("passes", 0.25, time_limit_s=30), runs_s=30)
    life.submit(sharing("endless", 0.25))
    assert life.stage.phases()["endless"] == "pending"
    placed = [fact.job for fact in life.stage.facts if isinstance(fact, GangPlaced)]
    assert placed == ["short", "long", "passes"]


@pytest.mark.parametrize("last", [sharing("b", 0.75), whole("b"), instance("b", "7g.80gb")])
def test_shares_instances_and_whole_gpus_are_promised_one_gpu_after_each_other(
    last: Job,
) -> None:
    """What was held for the instance left the GPU in MIG mode: `b` fitted, and then had no place."""
    life = Life(ONE_GPU, Policy(preemption=Preemption("none"), grace_s=0.0))
    wishes = [
        sharing("a", 0.5),
        instance("m", "3g.40gb"),
        replace(last, priority="batch"),
    ]
    for spec in wishes:
        life.submit(replace(spec, time_limit_s=50.0), runs_s=50.0)
    reservations = life.stage.scheduler.ledger.reservations
    assert {job: reservation.starts_at for job, reservation in reservations.items()} == {
        "m": 50,
        "b": 100,
    }
    life.until(100)
    assert (life.jobs["m"].placed_at, life.jobs["b"].placed_at) == (50, 100)


def test_a_share_has_the_gpu_whose_last_instance_was_given_back() -> None:
    stage = Stage(ONE_GPU)
    stage.submit(instance("a", "1g.10gb"))
    stage.started("a")
    stage.submit(sharing("b", 0.5))
    assert stage.phases()["b"] == "pending"
    stage.ended("a")
    placement = stage.state("b").placement
    assert placement is not None and [change.mode for change in placement.changes] == [False]


ORDERS: list[tuple[OrderKey, ...]] = [
    ("priority", "share", "arrival"),
    ("share", "remaining_service"),
    ("remaining_service",),
    ("attained", "share"),
]


def any_job(lots: Random, name: str) -> Job:
    """A gang of shares, of instances or of whole GPUs."""
    kinds = (
        Shape(gpus=lots.choice([1, 2])),
        Shape(gpu_share=lots.choice([0.25, 0.5, 0.7, 1.0])),
        Shape(mig=lots.choice(["1g.10gb", "3g.40gb", "7g.80gb"])),
    )
    role = Role("w", lots.choice([1, 1, 2]), lots.choice(kinds), run=("true",))
    return Job(
        name,
        (role,),
        queue=lots.choice("ab"),
        priority=lots.choice(["research", "batch", "serving"]),
        time_limit_s=lots.choice([None, 50.0, 100.0]),
        expected_s=lots.choice([None, 40.0, 90.0]),
    )


@given(st.integers(0, 1 << 30))
@settings(max_examples=examples(6, fewest=2), deadline=None)
def test_whatever_parts_of_gpus_come_and_go_a_recovered_scheduler_decides_the_same(
    seed: int,
) -> None:
    lots = Random(seed)
    rules = (
        QueueRule("a", guarantee=lots.choice([{}, {"gpus": 1.0}])),
        QueueRule("b", weight=3),
    )
    preemption = Preemption(lots.choice(["priority", "order", "none"]))
    policy = Policy(order=lots.choice(ORDERS), queues=rules, preemption=preemption)
    life = Life(cluster(leaves=1, nodes=lots.choice([1, 2]), gpus=2), policy)
    life.stage.recovered_every = 1
    for number in range(12):
        runs_s, leaves_s = lots.choice([30.0, 80.0]), lots.choice([0.0, 5.0])
        life.submit(any_job(lots, f"j{number}"), runs_s=runs_s, leaves_s=leaves_s)
        life.until(life.now + lots.choice([0.0, 7.0, 40.0]))
