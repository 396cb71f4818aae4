"""What people ask of jobs: suspend and resume, another size, another priority."""

from dataclasses import replace

from gantree.core.explain.explain import why
from gantree.model.events import (
    GangEnded,
    HoldRequested,
    PriorityRequested,
    ReleaseRequested,
    ScaleRequested,
    SuspendRequested,
)
from gantree.model.facts import (
    GangPreempted,
    JobHeld,
    JobReprioritised,
    JobScaled,
    StopDecided,
)
from gantree.model.jobs import Checkpoint, Elastic, Job
from gantree.model.orders import SaveCheckpoint
from gantree.model.phases import Phase, StopCause
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SAVES = Checkpoint(grace_s=20)


def running(*jobs: Job, nodes: int = 2) -> Stage:
    stage = Stage(cluster(leaves=1, nodes=nodes))
    for each in jobs:
        stage.submit(each)
        stage.started(each.name)
    return stage


def elastic(name: str, members: int, most: int = 4) -> Job:
    return replace(job(name, members, 8), elastic=Elastic(1, most))


# ----- suspend


def test_a_running_gang_that_is_suspended_saves_stops_and_waits_until_it_is_released() -> None:
    stage = running(job("a", 2, 8, checkpoint=SAVES))
    stage.tell(SuspendRequested, job="a")
    assert stage.phase("a") is Phase.SAVING
    assert isinstance(stage.orders[-1], SaveCheckpoint)
    stage.saved("a", 7)
    assert stage.phase("a") is Phase.STOPPING
    stage.ended("a", 143)
    stage.wait(1000)
    assert stage.phase("a") is Phase.PENDING
    assert "suspended by hand" in why(stage.scheduler.ledger, "a", stage.now).sentence
    stage.tell(ReleaseRequested, job="a")
    assert stage.phase("a") is Phase.STARTING
    assert stage.state("a").checkpoint_step == 7
    assert stage.state("a").preemptions == 0


def test_one_that_cannot_save_is_stopped() -> None:
    stage = running(job("a", 2, 8))
    stage.tell(SuspendRequested, job="a")
    assert stage.state("a").stop_cause is StopCause.SUSPENDED
    assert stage.phase("a") is Phase.STOPPING


def test_a_suspended_gang_keeps_its_place_in_the_order_of_arrival() -> None:
    stage = running(job("a", 2, 8))
    stage.submit(job("b", 2, 8), job("c", 2, 8))
    stage.tell(SuspendRequested, job="a")
    stage.ended("a", 143)
    assert stage.phases() == {"a": "pending", "b": "starting", "c": "pending"}
    stage.tell(ReleaseRequested, job="a")
    stage.started("b")
    stage.ended("b")
    assert stage.phases() == {"a": "starting", "b": "succeeded", "c": "pending"}


def test_to_suspend_a_waiting_job_is_to_hold_it() -> None:
    stage = running(job("a", 2, 8))
    stage.submit(job("b", 2, 8))
    decision = stage.tell(SuspendRequested, job="b")
    assert decision.facts[0] == JobHeld(at=0.0, job="b")
    assert stage.phase("b") is Phase.PENDING
    assert stage.tell(HoldRequested, job="b").facts == ()
    assert stage.tell(SuspendRequested, job="b").facts == ()


def test_who_leaves_already_leaves_as_it_was_told_and_is_held_then() -> None:
    stage = running(job("a", 2, 8, priority="research"))
    stage.submit(job("b", 2, 8, priority="production"))
    assert stage.state("a").stop_cause is StopCause.PREEMPTED
    decision = stage.tell(SuspendRequested, job="a")
    assert decision.facts == (JobHeld(at=0.0, job="a"),)
    stage.ended("a", 143)
    stage.started("b")
    stage.ended("b")
    assert stage.phases() == {"a": "pending", "b": "succeeded"}


def test_who_is_released_while_it_stops_starts_again_once_it_has() -> None:
    stage = running(job("a", 2, 8))
    stage.tell(SuspendRequested, job="a")
    stage.tell(ReleaseRequested, job="a")
    stage.ended("a", 143)
    assert stage.phase("a") is Phase.STARTING


def test_a_gang_that_ended_well_before_it_was_stopped_has_succeeded() -> None:
    stage = running(job("a", 2, 8))
    stage.tell(SuspendRequested, job="a")
    attempt = stage.state("a").attempt
    stage.tell(GangEnded, job="a", attempt=attempt, exit_code=0, unprompted=True)
    assert stage.phase("a") is Phase.SUCCEEDED


# ----- scale


def test_a_running_elastic_gang_grows_where_it_stands_and_goes_on() -> None:
    stage = running(elastic("a", 2), nodes=4)
    stage.tell(ScaleRequested, job="a", members=4)
    assert stage.state("a").moving is StopCause.RESIZED
    stage.ended("a", 143)
    assert sorted(stage.nodes("a")) == ["n0", "n1", "n2", "n3"]
    assert stage.state("a").spec.members == 4


def test_one_that_was_scaled_down_does_not_grow_by_itself_again() -> None:
    stage = running(elastic("a", 4), nodes=4)
    stage.tell(ScaleRequested, job="a", members=2)
    stage.ended("a", 143)
    stage.started("a")
    stage.wait(700)
    assert len(stage.nodes("a")) == 2
    assert stage.phase("a") is Phase.RUNNING
    stage.tell(ScaleRequested, job="a", members=3)
    stage.ended("a", 143)
    assert len(stage.nodes("a")) == 3


def test_a_waiting_gang_is_as_if_it_were_written_with_its_new_size() -> None:
    stage = running(job("x", 2, 8), nodes=4)
    stage.submit(replace(job("b", 3, 8), elastic=Elastic(3, 6)))
    assert stage.phase("b") is Phase.PENDING
    stage.tell(ScaleRequested, job="b", members=4)
    stage.ended("x")
    assert len(stage.nodes("b")) == 4


def test_what_was_done_counts_for_more_of_the_run_at_fewer_members() -> None:
    stage = running(replace(elastic("a", 4), expected_s=1000.0, checkpoint=SAVES), nodes=4)
    stage.wait(500)
    stage.saved("a", 5)
    stage.tell(SuspendRequested, job="a")
    stage.saved("a", 6)
    stage.ended("a", 143)
    assert stage.state("a").done_s == 500.0
    stage.tell(ScaleRequested, job="a", members=2)
    assert stage.state("a").spec.expected_s == 2000.0
    assert stage.state("a").done_s == 1000.0


def test_sizes_that_are_none_and_gangs_that_have_one_size_are_left_alone() -> None:
    stage = running(elastic("a", 2), job("b", 1, 8), nodes=4)
    for name, members in (("a", 9), ("a", 0), ("b", 2)):
        assert stage.tell(ScaleRequested, job=name, members=members).facts == ()
    assert stage.tell(ScaleRequested, job="a", members=2).facts[:1] == (
        JobScaled(at=0.0, job="a", members=2),
    )
    assert stage.tell(ScaleRequested, job="a", members=2).facts == ()


# ----- reprioritise


def test_a_waiting_job_of_higher_priority_goes_first() -> None:
    stage = running(job("a", 2, 8, priority="serving"))
    stage.submit(job("b", 2, 8), job("c", 2, 8))
    decision = stage.tell(PriorityRequested, job="c", priority="production")
    assert JobReprioritised(at=0.0, job="c", asked="production", priority=300) in decision.facts
    stage.ended("a")
    assert stage.phases() == {"a": "succeeded", "b": "pending", "c": "starting"}


def test_a_waiting_job_that_is_raised_may_preempt_and_a_running_one_that_is_lowered_be() -> None:
    stage = running(job("a", 2, 8))
    stage.submit(job("b", 2, 8))
    stage.wait(3600)
    decision = stage.tell(PriorityRequested, job="b", priority="production")
    assert any(isinstance(fact, GangPreempted) for fact in decision.facts)
    other = running(job("a", 2, 8))
    other.submit(job("b", 2, 8))
    other.wait(3600)
    decision = other.tell(PriorityRequested, job="a", priority="research")
    assert any(isinstance(fact, StopDecided) for fact in decision.facts)


def test_the_same_priority_again_and_a_class_that_is_none_change_nothing() -> None:
    stage = running(job("a", 2, 8))
    assert stage.tell(PriorityRequested, job="a", priority="batch").facts == ()
    assert stage.tell(PriorityRequested, job="a", priority="no-such").facts == ()
