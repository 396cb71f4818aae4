"""Queues whose jobs go in turn, gangs that come back into a line, and what is owed before what is borrowed."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.explain.explain import when, why
from gantree.model.facts import GangPlaced, GangPreempted
from gantree.model.phases import Phase
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

IN_TURN = Policy(order=("arrival",), backfill=Backfill("none"), preemption=Preemption(by="none"))
SITE = cluster(leaves=1, nodes=2, gpus=4)


def test_a_gang_that_can_never_start_closes_no_queue() -> None:
    stage = Stage(SITE, IN_TURN)
    stage.submit(job("never", members=3, gpus=4), job("small", gpus=1))
    assert stage.phase("small") is Phase.STARTING


def test_nobody_passes_who_is_alike_with_one_that_started() -> None:
    stage = Stage(SITE, IN_TURN)
    stage.submit(job("first", gpus=1), job("wide", members=2, gpus=4), job("alike", gpus=1))
    assert stage.phases() == {"first": "starting", "wide": "pending", "alike": "pending"}
    stage.ended("first")
    assert stage.phase("wide") is Phase.STARTING


RULES = (QueueRule("a", limit={"gpus": 7}), QueueRule("b", user_limit={"gpus": 6}))
gangs = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from("xy"),
    st.sampled_from((1, 1, 2)),
    st.sampled_from((1, 1, 2, 3)),
)
acts = st.lists(gangs, min_size=1, max_size=5) | st.integers(0, 5)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(((), RULES)), st.lists(acts, max_size=12))
def test_no_job_of_a_queue_starts_before_one_that_came_earlier(
    queues: tuple[QueueRule, ...], life: list[list[tuple[str, str, int, int]] | int]
) -> None:
    """All fit the cluster and the limits, so each may start once it is its turn; nobody is stopped for another."""
    stage = Stage(SITE, replace(IN_TURN, queues=queues))
    came: dict[str, list[str]] = {"a": [], "b": []}
    for act in life:
        if isinstance(act, int):
            held = list(stage.scheduler.ledger.holding)
            if held:
                stage.ended(held[act % len(held)])
        else:
            specs = []
            for queue, user, members, gpus in act:
                name = f"{queue}{len(came[queue])}"
                came[queue].append(name)
                specs.append(replace(job(name, members, gpus), queue=queue, user=user))
            stage.submit(*specs)
        for names in came.values():
            waits = [stage.phase(name) is Phase.PENDING for name in names]
            assert waits == sorted(waits), stage.phases()


def test_nobody_of_other_users_of_the_queue_passes_who_waits() -> None:
    policy = replace(IN_TURN, queues=(QueueRule("q", user_limit={"gpus": 8}), QueueRule("r")))
    stage = Stage(SITE, policy)
    wide, small, other = job("wide", members=2, gpus=4), job("small", gpus=1), job("other", gpus=1)
    stage.submit(replace(job("runs", gpus=4), queue="r"))
    stage.submit(
        replace(wide, queue="q", user="ann"),
        replace(small, queue="q", user="bob"),
        replace(other, queue="r", user="bob"),
    )
    assert stage.phases() == {
        "runs": "starting", "wide": "pending", "small": "pending", "other": "starting",
    }  # fmt: skip


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


def test_nobody_is_woken_for_one_whose_queue_another_has_closed() -> None:
    """The minimum run time of `low` ends at 30 s, but `small` goes first by now, and stops nobody of its own class."""
    policy = Policy(
        order=("smallest", "arrival"),
        backfill=Backfill("none"),
        preemption=Preemption(by="priority"),
        min_run_s=30.0,
    )
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(job("low", gpus=4, priority="research"))
    stage.started("low")
    assert stage.submit(job("big", gpus=4, priority="serving")).wake_at == 30.0
    assert stage.submit(job("small", gpus=1, priority="research")).wake_at is None
    stage.cancel("small")
    assert stage.scheduler.wake_at() == 30.0
