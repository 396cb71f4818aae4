"""What people are told about a job."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import brief_reason, when, why
from gantree.core.reservations.start_estimates import Start
from gantree.model.errors import NotFound
from gantree.model.jobs import Checkpoint
from gantree.model.phases import Phase
from gantree.model.verdicts import Gate
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


@pytest.fixture
def stage() -> Stage:
    """Two leaves of two 8-GPU nodes."""
    return Stage(cluster(leaves=2, nodes=2))


def test_a_waiting_gang_is_told_its_gate_its_numbers_and_who_goes_first(stage: Stage) -> None:
    stage.submit(job("full", members=4, gpus=8), job("first", gpus=8), job("second", gpus=8))
    explained = why(stage.scheduler.ledger, "second", 0)
    assert explained.refused is not None
    assert explained.refused.gate is Gate.ROOM
    assert explained.sentence.startswith("Waiting: ")
    assert (explained.ahead, explained.ahead_count) == (("first",), 1)


def test_every_way_out_that_is_offered_works(stage: Stage) -> None:
    stage.submit(job("wide", members=3, gpus=8, required="leaf"))
    refused = why(stage.scheduler.ledger, "wide", 0).refused
    assert refused is not None and refused.never
    assert refused.gate is Gate.CONTIGUITY
    assert refused.would_fit_if
    patches = [dict(relaxation.patch) for relaxation in refused.would_fit_if]
    assert {"topology.required": "spine"} in patches
    assert {"members": 2} in patches


def test_a_gang_that_fits_but_for_a_claim_is_told_for_whom_the_room_is_held(stage: Stage) -> None:
    stage.submit(job("half", members=2, gpus=8, priority="research"))
    stage.submit(job("other", members=2, gpus=8, priority="research"))
    stage.started("half", "other")
    stage.submit(job("urgent", members=4, gpus=8, priority="serving"))
    stage.ended("half", exit_code=143)
    stage.submit(job("small", gpus=8, priority="research"))
    explained = why(stage.scheduler.ledger, "small", 0)
    assert explained.refused is not None
    assert explained.refused.gate is Gate.RESERVATION
    assert "urgent" in explained.sentence


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("train", "asked to save a checkpoint to make room for urgent"),
        ("urgent", "train is leaving it"),
        ("late", "comes after train, which is saving"),
        ("failing", "starts again in 5 s"),
    ],
)
def test_whatever_else_a_job_waits_for_is_said(stage: Stage, name: str, words: str) -> None:
    stage.submit(job("train", members=2, gpus=8, checkpoint=Checkpoint()))
    stage.started("train")
    stage.submit(job("failing", gpus=8, priority="serving", restarts=1))
    stage.ended("failing", exit_code=1)
    stage.submit(job("urgent", members=3, gpus=8, priority="production"))
    stage.submit(job("late", after=("train",)))
    assert words in why(stage.scheduler.ledger, name, 0).sentence


def test_a_brief_reason_does_not_count_down(stage: Stage) -> None:
    stage.submit(job("failing", gpus=8, restarts=1))
    stage.ended("failing", exit_code=1)
    ledger = stage.scheduler.ledger
    told = {brief_reason(ledger, ledger.jobs["failing"], now) for now in (0.0, 1.0, 2.0)}
    ((sentence, _),) = told
    assert sentence.startswith("Waiting: starts again after a pause (")
    assert sentence.endswith("; failure 1).")


def test_who_waits_for_quota_is_told_whose_minimum_run_time_it_waits_for_and_how_long() -> None:
    """The second of the queue is enough: the first has longer to go, and the third is nobody whom it may stop."""
    rule = QueueRule("a", limit={"gpus": 24})
    stage = Stage(cluster(leaves=2, nodes=2), Policy(queues=(rule,), min_run_s=600))
    stage.submit(replace(job("second", gpus=8, priority="research"), queue="a"))
    stage.started("second")
    stage.wait(200)
    for name, priority in (("first", "research"), ("third", "serving")):
        stage.submit(replace(job(name, gpus=8, priority=priority), queue="a"))
        stage.started(name)
    stage.submit(replace(job("late", gpus=8, priority="serving"), queue="a"))
    explained = why(stage.scheduler.ledger, "late", stage.now)
    assert explained.sentence == (
        "Waiting: queue a uses 24 of its limit of 24 GPUs. "
        "second may be preempted for it in 400 s, after the minimum run time."
    )
    assert explained.in_the_way == (("second", "min_run"),)
    stage.wait(400)
    assert stage.phase("second") is Phase.STOPPING


def test_an_ended_job_is_told_how(stage: Stage) -> None:
    stage.submit(job("a"))
    stage.ended("a", exit_code=3)
    assert "failed (exit code 3)" in why(stage.scheduler.ledger, "a", 0).sentence


def test_a_job_that_nobody_handed_in_is_not_found(stage: Stage) -> None:
    with pytest.raises(NotFound, match="nobody"):
        why(stage.scheduler.ledger, "nobody", 0)


def test_a_gang_that_no_machine_holds_never_fits_though_its_queue_is_full_too() -> None:
    rules = (QueueRule("default", limit={"gpus": 16}),)
    stage = Stage(cluster(leaves=1, nodes=2), Policy(queues=rules, backfill=Backfill("any")))
    stage.submit(job("low", gpus=8, priority="research"), job("huge", gpus=10, priority="serving"))
    answer = why(stage.scheduler.ledger, "huge", stage.now)
    assert answer.refused is not None and answer.refused.never
    assert answer.sentence.startswith("Never fits: a member of role worker needs 10 GPUs")
    assert answer.in_the_way == ()


def test_who_has_no_eviction_left_is_not_said_to_be_stopped_after_its_minimum_run_time() -> None:
    rules = (QueueRule("default", limit={"gpus": 8}),)
    policy = Policy(queues=rules, min_run_s=30.0, evictions_per_day=0, backfill=Backfill("any"))
    stage = Stage(cluster(leaves=1, nodes=2), policy)
    stage.submit(job("low", gpus=8, priority="research"))
    stage.started("low")
    stage.submit(job("urgent", gpus=8, priority="serving"))
    answer = why(stage.scheduler.ledger, "urgent", stage.now)
    assert answer.sentence == "Waiting: queue default uses 8 of its limit of 8 GPUs."
    assert answer.in_the_way == ()


def test_who_has_claimed_room_is_told_when_those_are_gone_at_the_latest_who_leave_it() -> None:
    """Also where it was told a later start before; a claim is no promise."""
    stage = Stage(cluster(leaves=1, nodes=1), Policy(grace_s=10.0, min_run_s=30.0))
    stage.submit(job("low", gpus=8, priority="research", time_limit_s=100.0))
    stage.started("low")
    stage.submit(job("high", gpus=8, priority="serving"))
    ledger = stage.scheduler.ledger
    assert when(ledger, "high", 0) == Start(110.0, True, ("low",), True, domain="node s0/l0/n0")
    stage.wait(30.0)
    assert stage.phase("low") is Phase.STOPPING
    told = Start(40.0, False, ("low",), True, domain="node s0/l0/n0")
    assert when(ledger, "high", stage.now) == why(ledger, "high", stage.now).start == told


def test_nobody_can_say_when_a_job_starts_that_comes_after_another() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("first", gpus=1, time_limit_s=100.0))
    stage.submit(job("second", gpus=1, after=("first",)))
    assert when(stage.scheduler.ledger, "second", 0) is None
