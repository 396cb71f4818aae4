"""Queues whose jobs go in turn, gangs that come back into a line, and what is owed before what is borrowed."""

from dataclasses import replace

from gantree.core.explain import when, why
from gantree.model.facts import GangPlaced, GangPreempted
from gantree.model.phases import Phase
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

IN_TURN = Policy(order=("arrival",), backfill=Backfill("none"), preemption=Preemption(by="none"))
SITE = cluster(leaves=1, nodes=2, gpus=4)


def test_a_gang_that_can_never_start_closes_no_queue() -> None:
    stage = Stage(SITE, IN_TURN)
    stage.submit(job("never", members=3, gpus=4), job("small", gpus=1))
    assert stage.phase("small") is Phase.STARTING


def test_a_job_over_all_that_its_queue_may_ever_use_closes_no_queue() -> None:
    policy = replace(IN_TURN, queues=(QueueRule("a", limit={"gpus": 4}),))
    stage = Stage(SITE, policy)
    big, small = job("big", members=2, gpus=4), job("small", gpus=1)
    stage.submit(replace(big, queue="a"), replace(small, queue="a"))
    assert stage.phase("small") is Phase.STARTING


def test_who_waits_for_its_turn_is_told_for_whose() -> None:
    stage = Stage(SITE, IN_TURN)
    stage.submit(job("runs", gpus=4), job("front", members=2, gpus=4), job("small", gpus=1))
    ledger = stage.scheduler.ledger
    assert stage.phase("small") is Phase.PENDING
    assert "comes after front" in why(ledger, "small", stage.now).sentence
    assert when(ledger, "small", stage.now) is None
    told = when(ledger, "front", stage.now)
    assert told is not None and told.waits_for == ("runs",)


def test_what_is_owed_is_not_taken_back_out_of_turn() -> None:
    """The first asks for more than the queue is guaranteed, so nobody leaves for it, nor for who comes after it."""
    rules = (QueueRule("mine", guarantee={"gpus": 4}), QueueRule("other"))
    stage = Stage(SITE, replace(IN_TURN, queues=rules))
    stage.submit(*(replace(job(name, gpus=4), queue="other") for name in "xy"))
    stage.started("x", "y")
    first, small = job("first", members=2, gpus=4), job("small", gpus=1)
    stage.submit(replace(first, queue="mine"))
    stage.submit(replace(small, queue="mine"))
    assert stage.phases() == {
        "x": "running", "y": "running", "first": "pending", "small": "pending",
    }  # fmt: skip
    assert not stage.scheduler.ledger.claims
    stage.cancel("first")
    assert list(stage.scheduler.ledger.claims) == ["small"]


def test_a_job_that_comes_back_into_its_line_asks_for_itself() -> None:
    policy = Policy(
        order=("attained", "arrival"),
        attained_levels=(1e6,),
        preemption=Preemption(by="order"),
        backfill=Backfill("any"),
    )
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    alike = [job(name, gpus=4, restarts=3, backoff_s=5.0) for name in ("a", "b", "c")]
    stage.submit(*alike)
    stage.started("a")
    stage.ended("a", exit_code=1)
    stage.started("b")
    assert stage.scheduler.wake_at() == 5.0
    stage.wait(5.0)
    assert stage.state("b").preempted_by == "a"


def owed_and_borrowed() -> Stage:
    """Queue `mine` is owed a node; queue `other` of a higher class may borrow it."""
    queues = (QueueRule("mine", guarantee={"gpus": 4}), QueueRule("other", guarantee={"gpus": 4}))
    stage = Stage(SITE, Policy(queues=queues))
    stage.submit(
        replace(job("fills", gpus=4, priority="serving"), queue="other"),
        replace(job("lends", gpus=4, priority="serving"), queue="mine"),
    )
    stage.started("fills", "lends")
    stage.submit(
        replace(job("borrows", gpus=4, priority="production"), queue="other"),
        replace(job("owed", gpus=4, priority="research"), queue="mine"),
    )
    return stage


def test_nobody_starts_on_what_is_taken_back_at_once() -> None:
    stage = owed_and_borrowed()
    stage.ended("lends")
    placed = [fact.job for fact in stage.facts if isinstance(fact, GangPlaced)]
    assert placed == ["fills", "lends", "owed"]
    assert not any(isinstance(fact, GangPreempted) for fact in stage.facts)


def test_in_one_queue_its_own_order_goes_before_what_is_owed() -> None:
    queues = (QueueRule("mine", guarantee={"gpus": 4}), QueueRule("other", guarantee={"gpus": 4}))
    stage = Stage(SITE, Policy(queues=queues))
    stage.submit(
        replace(job("low", gpus=4, priority="research"), queue="mine"),
        replace(job("high", members=2, gpus=4, priority="production"), queue="mine"),
    )
    assert stage.phase("high") is Phase.STARTING
    assert stage.phase("low") is Phase.PENDING
