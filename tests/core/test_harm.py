"""What policy forbids: stopping gangs too early, too often, or at all."""

from dataclasses import replace

import pytest

from gantree.model.facts import GangPreempted
from gantree.model.jobs import Checkpoint
from gantree.policy.rules import Backfill, Policy, Preemption, VictimRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def preempted(stage: Stage, name: str) -> bool:
    """Whether an urgent gang that wants everything has the running one stopped."""
    decision = stage.submit(job(name, gpus=8, priority="serving"))
    return any(isinstance(fact, GangPreempted) for fact in decision.facts)


@pytest.mark.parametrize(("ran_s", "stopped"), [(599, False), (600, True)])
def test_a_gang_runs_its_minimum_before_it_may_be_stopped(ran_s: float, stopped: bool) -> None:
    stage = Stage(cluster(leaves=1, nodes=1), Policy(min_run_s=600))
    stage.submit(job("low", gpus=8))
    stage.started("low")
    stage.now = ran_s
    assert preempted(stage, "urgent") is stopped


def test_a_gang_that_became_old_enough_is_stopped_without_anything_else_happening() -> None:
    stage = Stage(cluster(leaves=1, nodes=1), Policy(min_run_s=600))
    stage.submit(job("low", gpus=8))
    stage.started("low")
    assert not preempted(stage, "urgent")
    assert stage.scheduler.wake_at() == 600
    decision = stage.wait(600)
    assert any(isinstance(fact, GangPreempted) for fact in decision.facts)


def test_no_moment_is_waited_for_at_which_too_little_could_be_stopped() -> None:
    """Who asks next after a claim is not looked at by bounds first; a recovered scheduler, which the stage asks, is."""
    stage = Stage(cluster(leaves=1, nodes=3), Policy(min_run_s=30.0, backfill=Backfill("any")))
    stays = replace(job("stays", gpus=8, priority="serving"), preemptible=False)
    stage.submit(stays, job("low", gpus=8, priority="research"))
    stage.started("stays", "low")
    stage.wait(60.0)
    stage.submit(job("spared", gpus=8, priority="research"))
    stage.started("spared")
    stage.submit(job("urgent", gpus=8, priority="serving"))
    assert list(stage.scheduler.ledger.claims) == ["urgent"]
    stage.submit(job("large", members=2, gpus=8, priority="serving"))
    assert stage.scheduler.wake_at() is None


def test_a_moment_is_waited_for_no_more_once_another_has_claimed_room_that_was_needed_beside() -> (
    None
):
    stage = Stage(cluster(leaves=1, nodes=2), Policy(min_run_s=30.0, backfill=Backfill("any")))
    stage.submit(job("low", gpus=8, priority="research"))
    stage.started("low")
    stage.wait(60.0)
    stage.submit(job("spared", gpus=8, priority="research"))
    stage.started("spared")
    stage.cancel("low")
    stage.submit(job("large", members=2, gpus=8, priority="batch"))
    assert stage.scheduler.wake_at() == 90.0
    stage.submit(job("urgent", gpus=8, priority="serving"))
    assert list(stage.scheduler.ledger.claims) == ["urgent"]
    assert stage.scheduler.wake_at() is None


@pytest.mark.parametrize(("pause_s", "stopped"), [(3_600, False), (90_000, True)])
def test_a_gang_is_preempted_only_so_often_a_day(pause_s: float, stopped: bool) -> None:
    stage = Stage(cluster(leaves=1, nodes=1), Policy(evictions_per_day=1))
    stage.submit(job("low", gpus=8))
    stage.started("low")
    assert preempted(stage, "first")
    stage.ended("low", exit_code=143)
    stage.started("first")
    stage.ended("first")
    stage.started("low")
    stage.now += pause_s
    assert preempted(stage, "second") is stopped


@pytest.mark.parametrize(("victims", "stopped"), [("loss", "old-but-saved"), ("youngest", "young")])
def test_victims_are_those_that_lose_least_or_those_placed_last(
    victims: VictimRule, stopped: str
) -> None:
    """The young gang loses all that it has done; the old one saves before it stops."""
    policy = Policy(preemption=Preemption(victims=victims), restart_s=0.0)
    stage = Stage(cluster(leaves=1, nodes=2), policy)
    stage.submit(replace(job("old-but-saved", gpus=8), checkpoint=Checkpoint(grace_s=0.0)))
    stage.started("old-but-saved")
    stage.wait(3600.0)
    stage.submit(job("young", gpus=8))
    stage.started("young")
    stage.wait(4000.0)
    decision = stage.submit(job("urgent", gpus=8, priority="serving"))
    assert [fact.job for fact in decision.facts if isinstance(fact, GangPreempted)] == [stopped]
