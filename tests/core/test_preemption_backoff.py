"""A job that is preempted again and again, sooner than a new start takes and in vain, rests before it begins anew."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import why
from gantree.core.queue.preemption_backoff import backoff_s
from gantree.model.events import ReleaseRequested, SuspendRequested
from gantree.model.jobs import Restarts
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from support.lives import Life

RESTART_S = 60.0
LOW = job("low", gpus=4, priority="research")
POLICY = Policy(restart_s=RESTART_S)


def preempted(life: Life, times: int, lasts_s: float = 0.0) -> list[str]:
    """A job "low" has the whole cluster so often for lasts_s, until one comes for which it is stopped in vain; whom.

    They have begun, and are suspended at once.
    """
    urgent = []
    for _ in range(times):
        life.pause(lasts_s)
        urgent.append(overtaken(life))
        life.stage.tell(SuspendRequested, job=urgent[-1])
        life.stage.ended(urgent[-1], 143)
        life.pause(0.0)
        assert life.stage.phase(urgent[-1]) == "pending"
    return urgent


def overtaken(life: Life) -> str:
    """A job "low" has the whole cluster until one of a higher class comes, which then has it; whom."""
    assert life.stage.phase("low") == "running"
    name = f"high{life.stage.state('low').preemptions}"
    life.submit(job(name, gpus=4, priority="serving"))
    life.quiet()
    assert life.stage.phase(name) == "running"
    return name


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


def test_who_yields_to_jobs_that_then_run_to_their_end_never_rests(life: Life) -> None:
    for _ in range(5):
        life.stage.ended(overtaken(life))
        life.pause(0.0)
    assert life.stage.phase("low") == "running"


def test_stops_for_jobs_that_have_ended_since_are_counted_no_more(life: Life) -> None:
    for one in preempted(life, 2):
        life.stage.cancel(one)
    preempted(life, 2)
    assert life.stage.phase("low") == "running"


def test_a_stop_for_one_that_has_held_its_place_for_long_since_is_counted_no_more() -> None:
    life = Life(cluster(leaves=1, nodes=2, gpus=4), POLICY)
    life.submit(LOW, job("other", gpus=4, priority="serving"))
    (long, _) = preempted(life, 2)
    life.stage.ended("other")
    life.stage.tell(ReleaseRequested, job=long)
    third = overtaken(life)
    assert life.stage.state("low").cut_short_for == ("high0", "high1", "high2")
    life.pause(RESTART_S)
    life.stage.ended(third)
    life.pause(0.0)
    overtaken(life)
    assert life.stage.phase(long) == "running"
    assert life.stage.state("low").cut_short_for == ("high1", "high3")


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
    assert backoff_s(1_000, POLICY) == backoff_s(9, POLICY) == 3600.0
    assert backoff_s(3, Policy(restart_s=0.0)) == 1.0


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
