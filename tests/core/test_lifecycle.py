"""What becomes of a job: its end, restarts, limits, dependencies, lost nodes."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.model.cluster import Allocation, Node
from gantree.model.events import (
    CancelRequested,
    ClusterObserved,
    GangEnded,
    GangStartFailed,
    JobSubmitted,
    MemberLost,
    NodeLost,
    NodeReturned,
    TimePassed,
)
from gantree.model.jobs import Checkpoint, Job, Restarts, Role, Shape
from gantree.model.orders import StartGang, StopGang
from gantree.model.phases import Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


@pytest.fixture
def stage() -> Stage:
    """One leaf of two 8-GPU nodes."""
    return Stage(cluster(leaves=1, nodes=2))


def test_a_gang_whose_ranks_all_end_with_0_has_succeeded(stage: Stage) -> None:
    stage.submit(job("a"))
    stage.started("a")
    stage.ended("a")
    assert (stage.phase("a"), stage.state("a").exit_code) == (Phase.SUCCEEDED, 0)


def test_a_gang_that_ends_before_its_start_was_told_has_succeeded_too(stage: Stage) -> None:
    stage.submit(job("a"))
    stage.ended("a")
    assert stage.phase("a") is Phase.SUCCEEDED


def test_one_failed_rank_stops_the_gang_once(stage: Stage) -> None:
    stage.submit(job("a", members=2, gpus=8))
    stage.started("a")
    assert [type(order) for order in stage.rank_failed("a", rank=1).orders] == [StopGang]
    assert stage.rank_failed("a", rank=0).orders == ()


def test_restarts_back_off_double_and_end(stage: Stage) -> None:
    stage.submit(job("a", restarts=2, backoff_s=10))
    for wait_s in (10, 20):
        stage.started("a")
        stage.rank_failed("a")
        decision = stage.ended("a", exit_code=1)
        assert decision.wake_at == stage.now + wait_s
        assert stage.wait(wait_s - 0.5).orders == ()
        assert [type(order) for order in stage.wait(0.5).orders] == [StartGang]
    stage.started("a")
    stage.rank_failed("a", exit_code=7)
    stage.ended("a", exit_code=7)
    state = stage.state("a")
    assert (state.phase, state.exit_code, state.attempt) == (Phase.FAILED, 7, 3)
    assert "rank 0 ended with 7" in state.reason


def test_a_gang_that_cannot_be_started_fails_in_words(stage: Stage) -> None:
    stage.submit(job("a"))
    stage.tell(GangStartFailed, job="a", attempt=1, reason="no such command: pyhton")
    stage.ended("a", exit_code=127)
    assert (stage.phase("a"), stage.state("a").reason) == (
        Phase.FAILED,
        "no such command: pyhton",
    )


@pytest.mark.parametrize(("final", "phase"), [(False, Phase.PENDING), (True, Phase.FAILED)])
def test_a_start_that_would_fail_every_time_is_not_tried_again(
    stage: Stage, final: bool, phase: Phase
) -> None:
    stage.submit(job("a", restarts=3))
    stage.tell(GangStartFailed, job="a", attempt=1, reason="no such instance", final=final)
    stage.ended("a", exit_code=126)
    assert stage.phase("a") is phase
    assert not final or stage.state("a").reason == "no such instance"


def test_a_job_over_its_limit_is_stopped_and_timed_out(stage: Stage) -> None:
    stage.submit(job("a", time_limit_s=100))
    stage.now = 5
    stage.started("a")
    assert stage.scheduler.wake_at() == 105
    assert [type(order) for order in stage.wait(100).orders] == [StopGang]
    stage.ended("a", exit_code=143)
    assert stage.phase("a") is Phase.TIMED_OUT


@pytest.mark.parametrize("started", [True, False])
def test_a_cancelled_gang_is_stopped_and_then_over(stage: Stage, started: bool) -> None:
    stage.submit(job("a"))
    if started:
        stage.started("a")
    assert [type(order) for order in stage.cancel("a").orders] == [StopGang]
    assert stage.cancel("a").orders == ()
    stage.ended("a", exit_code=143)
    assert stage.phase("a") is Phase.CANCELLED


def test_cancelling_a_waiting_job_ends_it_at_once(stage: Stage) -> None:
    stage.submit(job("a", members=2, gpus=8), job("b", gpus=8))
    assert stage.cancel("b").orders == ()
    assert stage.phase("b") is Phase.CANCELLED


def test_cancelling_a_gang_that_is_being_preempted_ends_it(stage: Stage) -> None:
    stage.submit(job("low", members=2, gpus=8, priority="research"))
    stage.started("low")
    stage.submit(job("high", gpus=8))
    stage.cancel("low")
    stage.ended("low", exit_code=143)
    assert stage.phases() == {"low": "cancelled", "high": "starting"}


def test_a_gang_that_ended_well_before_it_was_told_to_stop_has_succeeded(stage: Stage) -> None:
    stage.submit(job("low", members=2, gpus=8, priority="research"))
    stage.started("low")
    stage.now = 50
    stage.submit(job("high", gpus=8))
    stage.now = 51
    stage.tell(GangEnded, job="low", attempt=1, exit_code=0, occurred_at=49.0)
    assert stage.phase("low") is Phase.SUCCEEDED


def test_a_script_that_ends_with_0_after_answering_the_request_is_requeued(stage: Stage) -> None:
    """Both are cell_view in one look, so the end lies before the moment at which the stop was decided."""
    save = Checkpoint()
    stage.submit(job("low", members=2, gpus=8, priority="research", checkpoint=save))
    stage.started("low")
    stage.now = 50
    stage.submit(job("high", gpus=8))
    stage.now = 51
    stage.saved("low", step=9)
    stage.tell(GangEnded, job="low", attempt=1, exit_code=0, occurred_at=50.5)
    assert stage.phases() == {"low": "pending", "high": "starting"}


def test_a_job_starts_after_those_it_comes_after(stage: Stage) -> None:
    stage.submit(job("data"), job("train", after=("data",)))
    assert stage.phase("train") is Phase.PENDING
    stage.ended("data")
    assert stage.phase("train") is Phase.STARTING


def test_a_job_fails_with_the_one_it_comes_after(stage: Stage) -> None:
    stage.submit(job("data"), job("train", after=("data",)), job("eval", after=("train",)))
    stage.ended("data", exit_code=3)
    assert stage.phases() == {"data": "failed", "train": "failed", "eval": "failed"}
    assert stage.state("eval").reason == "train, which it comes after, failed"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (job("b", after=("nobody",)), "no such job"),
        (job("b", priority="urgnet"), "urgnet"),
        (job("b", required="rack"), "rack"),
    ],
)
def test_a_job_that_could_never_start_is_rejected_in_words(
    stage: Stage, spec: object, words: str
) -> None:
    stage.tell(JobSubmitted, job="b", spec=spec)
    assert words in stage.scheduler.ledger.rejected["b"]


def test_a_job_is_rejected_that_comes_after_one_that_has_failed(stage: Stage) -> None:
    stage.submit(job("data"))
    stage.ended("data", exit_code=3)
    stage.submit(job("train", after=("data",)))
    assert stage.scheduler.ledger.rejected["train"] == "it comes after data, which failed"


def test_the_same_submission_told_twice_is_one_job(stage: Stage) -> None:
    stage.submit(job("a"))
    assert stage.submit(job("a")).facts == ()


def _picky(*exit_codes: int) -> Job:
    return replace(job("a", members=2, gpus=8), restarts=Restarts(2, 10, exit_codes=exit_codes))


@pytest.mark.parametrize(("code", "phase"), [(75, Phase.PENDING), (1, Phase.FAILED)])
def test_a_rank_that_failed_is_tried_again_only_for_the_exit_codes_that_say_so(
    stage: Stage, code: int, phase: Phase
) -> None:
    stage.submit(_picky(75, 143))
    stage.started("a")
    stage.rank_failed("a")
    stage.ended("a", exit_code=code)
    assert stage.phase("a") is phase
    assert (
        phase is Phase.PENDING
        or "restarts only after exit codes 75, 143" in stage.state("a").reason
    )


def test_exit_codes_of_restarts_concern_no_member_that_is_lost(stage: Stage) -> None:
    stage.submit(_picky(75))
    stage.started("a")
    stage.tell(MemberLost, job="a", attempt=1, role="worker", member=1, reason="shim")
    stage.ended("a", exit_code=137)
    assert stage.phase("a") is Phase.PENDING


def test_a_lost_member_restarts_the_gang(stage: Stage) -> None:
    stage.submit(job("a", members=2, gpus=8, restarts=1, backoff_s=0))
    stage.started("a")
    stage.tell(MemberLost, job="a", attempt=1, role="worker", member=1, reason="shim gone")
    stage.ended("a", exit_code=137)
    assert (stage.phase("a"), stage.state("a").attempt) == (Phase.STARTING, 2)


def test_a_lost_node_is_avoided_and_not_the_jobs_fault(stage: Stage) -> None:
    stage.submit(job("a", gpus=8, restarts=0, backoff_s=0))
    stage.started("a")
    (node,) = stage.nodes("a")
    stage.tell(NodeLost, node=node, reason="power")
    stage.ended("a", exit_code=137)
    assert stage.phase("a") is Phase.STARTING
    assert stage.nodes("a") != [node]
    assert stage.state("a").failures == 0


def test_a_node_that_returns_is_used_again(stage: Stage) -> None:
    stage.tell(NodeLost, node="n0")
    stage.tell(NodeLost, node="n1")
    stage.submit(job("a"))
    assert stage.phase("a") is Phase.PENDING
    stage.tell(NodeReturned, node="n1")
    assert stage.nodes("a") == ["n1"]


def test_news_of_older_attempts_and_unknown_jobs_is_passed_over(stage: Stage) -> None:
    stage.submit(job("a", restarts=1, backoff_s=0))
    stage.ended("a", exit_code=1)
    assert stage.state("a").attempt == 2
    for old in (
        stage.event(GangEnded, job="a", attempt=1, exit_code=0),
        stage.event(GangEnded, job="nobody", attempt=1, exit_code=0),
        stage.event(CancelRequested, job="nobody"),
        stage.event(NodeLost, node="nowhere"),
    ):
        assert stage.handle([old]).facts == ()


def test_a_waiting_job_whose_tier_is_gone_fails_and_the_others_go_on(stage: Stage) -> None:
    stage.submit(job("full", members=2, gpus=8), job("spined", required="spine"), job("other"))
    flat = replace(
        cluster(leaves=1, nodes=2),
        tiers=("leaf", "node"),
        nodes=tuple(Node(f"n{i}", "m", ("l0",)) for i in range(2)),
        links={},
    )
    assert stage.scheduler.conflicts(flat) == ()
    stage.tell(ClusterObserved, cluster=flat)
    assert stage.phases() == {"full": "starting", "spined": "failed", "other": "pending"}
    assert "spine" in stage.state("spined").reason


def test_a_cluster_that_lacks_what_runs_is_named_a_conflict(stage: Stage) -> None:
    stage.submit(job("a", members=2, gpus=8))
    smaller = replace(cluster(leaves=1, nodes=2), nodes=(Node("n0", "m", ("s0", "l0")),))
    assert stage.scheduler.conflicts(smaller) == ("a runs, and there is no node n1",)
    taken = replace(cluster(leaves=1, nodes=2), allocations=(Allocation("x", "n0", (3,)),))
    assert stage.scheduler.conflicts(taken) == ("a runs, and on n0 GPUs 3 are not free",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpus": 4.0}, "8 CPUs are not free"),
        ({"nics": ()}, "some do not exist"),
        ({"gpus": 1, "links": (("X",),), "numa": (0,)}, "GPUs 1 are not free"),
    ],
)
def test_a_machine_that_shrank_under_a_running_gang_is_a_conflict(
    change: dict[str, Any], words: str
) -> None:
    full = cluster(leaves=1, nodes=1, gpus=2, nics=2)
    stage = Stage(replace(full, machines={"m": replace(full.machines["m"], cpus=16.0)}))
    stage.submit(Job("a", (Role("w", 1, Shape(gpus=2, cpus=8.0, nics=2)),)))
    smaller = replace(full, machines={"m": replace(full.machines["m"], **{"cpus": 16.0, **change})})
    (conflict,) = stage.scheduler.conflicts(smaller)
    assert words in conflict


def test_a_claim_does_not_outlive_the_node_that_it_holds(stage: Stage) -> None:
    stage.submit(job("low", gpus=8, priority="research"))
    stage.started("low")
    stage.submit(job("urgent", members=2, gpus=8, priority="serving"))
    assert set(stage.scheduler.ledger.claims) == {"urgent"}
    (kept,) = stage.nodes("low")
    smaller = replace(cluster(leaves=1, nodes=2), nodes=(Node(kept, "m", ("s0", "l0")),))
    assert stage.scheduler.conflicts(smaller) == ()
    stage.tell(ClusterObserved, cluster=smaller)
    assert stage.scheduler.ledger.claims == {}
    stage.ended("low", exit_code=143)
    assert stage.phases() == {"low": "starting", "urgent": "pending"}


def test_a_long_chain_fails_with_its_first_job(stage: Stage) -> None:
    chain = [job(f"j{n}", 1, 0, after=(f"j{n - 1}",) if n else ()) for n in range(1500)]
    scheduler = stage.scheduler
    scheduler.handle([stage.event(JobSubmitted, job=spec.name, spec=spec) for spec in chain])
    scheduler.handle([stage.event(CancelRequested, job="j0")])
    scheduler.handle([stage.event(GangEnded, job="j0", attempt=1, exit_code=143)])
    assert {state.phase for state in scheduler.ledger.jobs.values()} == {
        Phase.CANCELLED,
        Phase.FAILED,
    }


def test_a_backoff_stays_at_its_limit_however_often_it_doubled(stage: Stage) -> None:
    stage.submit(job("a", restarts=3000, backoff_s=1))
    for _ in range(1100):
        stage.scheduler.handle(
            [stage.event(GangEnded, job="a", attempt=stage.state("a").attempt, exit_code=1)]
        )
        stage.now += 300
        stage.scheduler.handle([stage.event(TimePassed)])
    assert stage.state("a").attempt == 1101


def test_a_gang_that_ended_unprompted_just_after_the_decision_has_succeeded(stage: Stage) -> None:
    stage.submit(job("low", members=2, gpus=8, priority="research"))
    stage.started("low")
    stage.submit(job("high", gpus=8))
    stage.tell(GangEnded, job="low", attempt=1, exit_code=0, unprompted=True)
    assert stage.phases() == {"low": "succeeded", "high": "starting"}


def test_a_job_that_is_withdrawn_ends_with_the_reason_and_one_that_was_placed_meanwhile_goes_on(
    stage: Stage,
) -> None:
    stage.submit(job("placed", members=2, gpus=8), job("waits", gpus=8))
    for name in ("placed", "waits"):
        told = stage.event(CancelRequested, job=name, reason="withdrawn", if_pending=True)
        assert stage.handle([told]).orders == ()
    assert stage.phase("placed") is Phase.STARTING
    assert (stage.phase("waits"), stage.state("waits").reason) == (Phase.CANCELLED, "withdrawn")
