"""A job that is preempted again and again, each time sooner than a new start takes, rests before it begins anew."""

from dataclasses import replace

import pytest

from gantree.core.explain import why
from gantree.core.rest import rest_s
from gantree.model.jobs import Restarts
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.lives import Life

RESTART_S = 60.0
LOW = job("low", gpus=4, priority="research")
POLICY = Policy(restart_s=RESTART_S)


def preempted(life: Life, times: int, lasts_s: float = 0.0) -> None:
    """A job "low" has the whole cluster so often for lasts_s, until one of a higher class comes, for a moment."""
    for _ in range(times):
        life.pause(lasts_s)
        assert life.stage.phase("low") == "running"
        name = f"high{life.stage.state('low').preemptions}"
        life.submit(job(name, gpus=4, priority="serving"))
        life.quiet()
        assert life.stage.phase(name) == "running"
        life.stage.ended(name)
        life.pause(0.0)


@pytest.fixture
def life() -> Life:
    life = Life(cluster(leaves=1, nodes=1, gpus=4), POLICY)
    life.submit(replace(LOW, restarts=Restarts(limit=1)))
    return life


def test_two_attempts_cut_short_may_be_chance(life: Life) -> None:
    preempted(life, 2)
    assert life.stage.phase("low") == "running"


def test_from_the_third_on_it_rests_for_twice_as_long_each_time_and_is_told_so(life: Life) -> None:
    preempted(life, 3)
    assert life.stage.scheduler.wake_at() == life.now + RESTART_S
    told = why(life.stage.scheduler.ledger, "low", life.now).sentence
    assert told == (
        "Waiting: starts again in 60 s (preempted 3 times in a row, sooner than a new start takes)."
    )
    life.pause(RESTART_S)
    preempted(life, 1)
    assert life.stage.scheduler.wake_at() == life.now + 2 * RESTART_S


def test_an_attempt_that_lasts_ends_the_count(life: Life) -> None:
    preempted(life, 2)
    preempted(life, 1, lasts_s=RESTART_S)
    preempted(life, 2)
    assert life.stage.phase("low") == "running"


def test_an_attempt_that_fails_ends_the_count(life: Life) -> None:
    preempted(life, 2)
    life.stage.rank_failed("low")
    life.stage.ended("low", 1)
    assert life.stage.phase("low") == "pending"
    assert life.stage.state("low").cut_short == 0


def test_a_rest_is_never_longer_than_an_hour_and_never_nothing() -> None:
    assert rest_s(1_000, POLICY) == rest_s(9, POLICY) == 3600.0
    assert rest_s(3, Policy(restart_s=0.0)) == 1.0


def test_a_job_that_rests_goes_home_at_once_where_a_cell_of_its_queue_is_free() -> None:
    """A private cluster would not make it wait."""
    queues = tuple(QueueRule(name, cells=(("node", 1),)) for name in ("a", "default"))
    life = Life(cluster(leaves=1, nodes=2, gpus=4), replace(POLICY, queues=queues))
    life.submit(replace(job("first", gpus=4), queue="a"))
    life.submit(replace(LOW, queue="a"))
    preempted(life, 3)
    assert life.stage.state("low").not_before == life.now + RESTART_S
    life.stage.ended("first")
    assert life.stage.phase("low") == "starting"
    assert life.stage.state("low").at_home
