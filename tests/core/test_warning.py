"""A signal before the time limit: when it is decided, that it is decided once, and what the cluster is told again."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.core.explain.explain import why
from gantree.core.scheduler import settled
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import TimePassed
from gantree.model.facts import GangWarned, StopDecided
from gantree.model.jobs import Checkpoint, Job, Warn
from gantree.model.orders import SignalGang, StopGang
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def warned_job(**fields: Any) -> Job:
    made = job("a", gpus=8, time_limit_s=600.0, checkpoint=Checkpoint(grace_s=30.0))
    return replace(made, **{"warn": Warn("SIGUSR1", 60.0), **fields})


@pytest.fixture
def stage() -> Stage:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(warned_job())
    stage.now = 100.0
    stage.started("a")
    return stage


def warnings(stage: Stage) -> list[SignalGang]:
    return [order for order in stage.orders if isinstance(order, SignalGang)]


def test_the_gang_is_signalled_so_long_before_its_limit_and_stopped_at_its_limit(
    stage: Stage,
) -> None:
    assert stage.scheduler.wake_at() == 640.0
    stage.wait(539.0)
    assert not warnings(stage)
    stage.wait(1.0)
    (fact,) = [fact for fact in stage.facts if isinstance(fact, GangWarned)]
    assert (fact.at, fact.attempt, fact.signal, fact.ends_at) == (640.0, 1, "SIGUSR1", 700.0)
    (order,) = warnings(stage)
    assert (order.id, order.signal) == ("a/1/warn", "SIGUSR1")
    assert stage.scheduler.wake_at() == 700.0
    assert "its time limit is near" in why(stage.scheduler.ledger, "a", stage.now).sentence
    stage.wait(60.0)
    assert stage.phase("a") is Phase.STOPPING
    assert len(warnings(stage)) == 1


def test_a_warning_that_nobody_gave_in_time_is_not_made_up_for(stage: Stage) -> None:
    stage.wait(10_000.0)
    assert not warnings(stage)
    assert [fact.cause for fact in stage.facts if isinstance(fact, StopDecided)] == ["time-limit"]
    assert isinstance(stage.orders[-1], StopGang)


def test_each_attempt_is_warned_for_itself(stage: Stage) -> None:
    stage.wait(540.0)
    stage.submit(job("urgent", gpus=8, priority="production"))
    stage.saved("a", 7)
    stage.ended("a", 143)
    stage.started("urgent")
    stage.ended("urgent")
    stage.started("a")
    assert stage.scheduler.wake_at() == stage.now + 540.0
    stage.wait(540.0)
    assert [order.attempt for order in warnings(stage)] == [1, 2]


def test_who_goes_on_from_a_snapshot_warns_nobody_twice_and_tells_the_cluster_again(
    stage: Stage,
) -> None:
    before = restored(snapshot_of(stage.scheduler), Policy())
    assert settled(before, [], stage.now).wake_at == 640.0
    stage.wait(540.0)
    after = restored(snapshot_of(stage.scheduler), Policy())
    assert [type(order).__name__ for order in after.standing_orders()] == [
        "StartGang",
        "SignalGang",
    ]
    assert after.handle([TimePassed(id="t", observed_at=stage.now)]).facts == ()
    decided = before.handle([TimePassed(id="t", observed_at=stage.now)])
    assert [type(fact) for fact in decided.facts] == [GangWarned]
