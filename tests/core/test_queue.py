"""Who starts when: priority, arrival, all or nothing, making room."""

import pytest

from gantree.model.facts import GangPreempted, RoomClaimed
from gantree.model.jobs import Checkpoint
from gantree.model.orders import SaveCheckpoint, StartGang, StopGang
from gantree.model.phases import Phase
from gantree.policy.rules import Policy, Preemption
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


@pytest.fixture
def stage() -> Stage:
    """Two leaves of two 8-GPU nodes: 32 GPUs."""
    return Stage(cluster(leaves=2, nodes=2, gpus=8))


def test_a_gang_that_fits_is_started_at_once_with_one_order(stage: Stage) -> None:
    decision = stage.submit(job("a", members=2, gpus=8, processes=8))
    (order,) = decision.orders
    assert isinstance(order, StartGang)
    assert order.world_size == 16
    assert [(m.node, m.node_rank, m.first_rank) for m in order.members] == [
        ("n0", 0, 0),
        ("n1", 1, 8),
    ]
    assert stage.phase("a") is Phase.STARTING


def test_a_gang_that_does_not_fit_holds_nothing(stage: Stage) -> None:
    stage.submit(job("small", members=1, gpus=8), job("big", members=4, gpus=8))
    assert stage.phase("big") is Phase.PENDING
    assert "big" not in stage.scheduler.ledger.rooms().owners


def test_two_gangs_that_each_want_most_of_the_cluster_do_not_deadlock(stage: Stage) -> None:
    """Pod by pod, each would get half of its members and wait for ever for the other's."""
    stage.submit(job("a", members=3, gpus=8), job("b", members=3, gpus=8))
    assert stage.phases() == {"a": "starting", "b": "pending"}
    stage.started("a")
    stage.ended("a")
    assert stage.phases() == {"a": "succeeded", "b": "starting"}


def test_equal_priorities_go_in_order_of_arrival(stage: Stage) -> None:
    stage.submit(job("full", members=4, gpus=8))
    stage.submit(job("first", members=4, gpus=8))
    stage.submit(job("second", members=4, gpus=8))
    stage.started("full")
    stage.ended("full")
    assert stage.phases() == {"full": "succeeded", "first": "starting", "second": "pending"}


def test_a_higher_class_goes_first_whenever_it_came(stage: Stage) -> None:
    policy = Policy(preemption=Preemption(by="none"))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=8), policy)
    stage.submit(job("full", gpus=8))
    stage.submit(job("low", gpus=8, priority="research"))
    stage.submit(job("high", gpus=8, priority="serving"))
    stage.started("full")
    stage.ended("full")
    assert stage.phases() == {"full": "succeeded", "low": "pending", "high": "starting"}


def test_a_small_gang_starts_on_room_that_a_waiting_one_cannot_use(stage: Stage) -> None:
    stage.submit(job("a", members=3, gpus=8), job("big", members=2, gpus=8), job("c", gpus=8))
    assert stage.phases() == {"a": "starting", "big": "pending", "c": "starting"}


def test_a_required_leaf_is_never_split(stage: Stage) -> None:
    stage.submit(job("a", gpus=8), job("b", members=2, gpus=8, required="leaf"))
    stage.submit(job("c", members=2, gpus=8, required="leaf"))
    assert stage.nodes("b") == ["n2", "n3"]
    assert stage.phase("c") is Phase.PENDING


def test_a_higher_class_takes_the_room_of_a_lower_one_after_its_checkpoint(stage: Stage) -> None:
    save = Checkpoint(every_s=60, grace_s=60)
    stage.submit(job("train", members=4, gpus=8, checkpoint=save))
    stage.started("train")
    stage.now = 100
    decision = stage.submit(job("serve", gpus=8, priority="serving"))
    assert [type(order) for order in decision.orders] == [SaveCheckpoint]
    assert stage.phases() == {"train": "saving", "serve": "pending"}
    decision = stage.saved("train", step=40)
    assert [type(order) for order in decision.orders] == [StopGang]
    stage.ended("train", exit_code=143)
    assert stage.phases() == {"train": "pending", "serve": "starting"}
    stage.started("serve")
    stage.ended("serve")
    assert stage.phases() == {"train": "starting", "serve": "succeeded"}
    train = stage.state("train")
    assert (train.attempt, train.checkpoint_step, train.preemptions) == (2, 40, 1)


def test_a_gang_without_checkpoints_is_stopped_and_never_asked_to_save(stage: Stage) -> None:
    stage.submit(job("train", members=4, gpus=8))
    stage.started("train")
    decision = stage.submit(job("serve", gpus=8, priority="serving"))
    assert [type(order) for order in decision.orders] == [StopGang]


def test_a_checkpoint_that_never_comes_ends_at_the_deadline(stage: Stage) -> None:
    stage.submit(job("train", members=4, gpus=8, checkpoint=Checkpoint(grace_s=60)))
    stage.started("train")
    decision = stage.submit(job("serve", gpus=8, priority="serving"))
    assert decision.wake_at == 60
    assert stage.wait(59.9).orders == ()
    assert [type(order) for order in stage.wait(0.1).orders] == [StopGang]


def test_equals_are_never_preempted(stage: Stage) -> None:
    stage.submit(job("a", members=4, gpus=8))
    stage.started("a")
    assert stage.submit(job("b", gpus=8)).orders == ()


def test_nothing_is_stopped_for_a_gang_that_would_not_fit_even_then(stage: Stage) -> None:
    stage.submit(job("low", members=2, gpus=8, priority="research"), job("equal", gpus=8))
    stage.started("low", "equal")
    decision = stage.submit(job("huge", members=4, gpus=8))
    assert decision.orders == ()
    assert not any(isinstance(fact, RoomClaimed) for fact in decision.facts)


def test_the_victim_is_the_one_that_loses_least(stage: Stage) -> None:
    stage.submit(*(job(name, members=2, gpus=8) for name in ("old", "new")))
    stage.started("old")
    stage.now = 500
    stage.started("new")
    stage.now = 600
    decision = stage.submit(job("serve", members=2, gpus=8, priority="serving"))
    (preempted,) = [fact for fact in decision.facts if isinstance(fact, GangPreempted)]
    assert preempted.job == "new"


def test_a_lower_class_is_hurt_before_a_cheaper_one(stage: Stage) -> None:
    stage.submit(job("research", members=2, gpus=8, priority="research"))
    stage.started("research")
    stage.now = 500
    stage.submit(job("batch", members=2, gpus=8))
    stage.started("batch")
    decision = stage.submit(job("serve", members=2, gpus=8, priority="serving"))
    (preempted,) = [fact for fact in decision.facts if isinstance(fact, GangPreempted)]
    assert preempted.job == "research"


def test_a_whole_leaf_is_emptied_rather_than_scattered_gpus(stage: Stage) -> None:
    """One victim per node; the cheapest two sit in different leaves, so they would not help."""
    started_at = {"a": 90, "b": 10, "c": 95, "d": 85}
    stage.submit(*(job(name, gpus=8) for name in started_at))
    for name in sorted(started_at, key=lambda name: started_at[name]):
        stage.now = started_at[name]
        stage.started(name)
    stage.now = 100
    decision = stage.submit(job("serve", members=2, gpus=8, priority="serving", required="leaf"))
    preempted = {fact.job for fact in decision.facts if isinstance(fact, GangPreempted)}
    assert preempted == {"c", "d"}


def test_room_that_victims_leave_is_held_for_whom_they_left(stage: Stage) -> None:
    stage.submit(*(job(name, members=2, gpus=8, priority="research") for name in ("a", "b")))
    stage.started("a", "b")
    stage.submit(job("serve", members=4, gpus=8, priority="serving"))
    stage.ended("a", exit_code=143)
    stage.submit(job("sneaky", gpus=8))
    assert stage.phases()["sneaky"] == "pending"
    stage.ended("b", exit_code=143)
    assert stage.phases() == {
        "a": "pending",
        "b": "pending",
        "serve": "starting",
        "sneaky": "pending",
    }


def test_a_second_urgent_gang_uses_what_the_first_one_left_of_the_emptied_room(
    stage: Stage,
) -> None:
    stage.submit(job("train", members=4, gpus=8))
    stage.started("train")
    stage.submit(job("one", gpus=8, priority="serving"))
    decision = stage.submit(job("two", gpus=8, priority="serving"))
    assert not any(isinstance(fact, GangPreempted) for fact in decision.facts)
    stage.ended("train", exit_code=143)
    assert stage.phases() == {"train": "pending", "one": "starting", "two": "starting"}


def test_a_claim_goes_with_its_job(stage: Stage) -> None:
    stage.submit(job("train", members=4, gpus=8))
    stage.started("train")
    stage.submit(job("serve", gpus=8, priority="serving"))
    stage.cancel("serve")
    stage.ended("train", exit_code=143)
    assert stage.phases() == {"train": "starting", "serve": "cancelled"}


def test_a_policy_without_preemption_stops_nobody() -> None:
    stage = Stage(cluster(leaves=1, nodes=1), Policy(preemption=Preemption(by="none")))
    stage.submit(job("low", gpus=8, priority="research"))
    stage.started("low")
    assert stage.submit(job("high", gpus=8, priority="serving")).orders == ()


def test_a_lower_class_does_not_take_free_gpus_that_a_waiting_gang_needs_beside_leaving_ones() -> (
    None
):
    """Else it would be preempted for the waiting gang a moment later."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=8))
    stage.submit(job("going", gpus=8), job("half", gpus=4))
    stage.started("going", "half")
    stage.cancel("going")
    stage.submit(job("wide", members=3, gpus=4), job("low", gpus=4, priority="research"))
    assert stage.phases()["low"] == "pending"
    stage.ended("going", exit_code=143)
    assert stage.phases() == {
        "going": "cancelled",
        "half": "running",
        "wide": "starting",
        "low": "pending",
    }


def test_a_claim_does_not_hold_against_a_job_that_goes_before_its_own(stage: Stage) -> None:
    stage.submit(job("a", members=3, gpus=8, priority="research"))
    stage.started("a")
    stage.submit(job("wide", members=4, gpus=8, priority="production"))
    assert set(stage.scheduler.ledger.claims) == {"wide"}
    stage.submit(job("urgent", gpus=8, priority="serving"))
    assert stage.phases() == {"a": "stopping", "wide": "pending", "urgent": "starting"}
    stage.started("urgent")
    stage.ended("urgent")
    stage.ended("a", exit_code=143)
    assert stage.phases() == {"a": "pending", "wide": "starting", "urgent": "succeeded"}
