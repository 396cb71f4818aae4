"""Useful and idle GPU-seconds: what counters told, held equal to a plain recount of the facts, and never too much."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.usage import life_of
from gantree.core.scheduler import Decision
from gantree.model.events import CheckpointSaved, GpuUseObserved
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.jobs import Checkpoint
from gantree.model.phases import HOLDING
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples
from support.measured_lives import MeasuredLives
from support.purposes import Purposes
from support.random_lives import EVERY_KIND

Amounts = tuple[float, float, float]
"""GPU-seconds useful, idle and wasted."""


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(EVERY_KIND)))
def test_useful_and_idle_are_what_a_plain_recount_gives(seed: int, name: str) -> None:
    lives = MeasuredLives(seed, EVERY_KIND[name])
    for step in range(80):
        lives.step()
        if step == 40:
            lives.twins = [("restored", lives.make_twin()), ("folded", lives.folded())]
    ledger, now = lives.scheduler.ledger, lives.now
    fabric = ledger.rooms().fabric
    recount = Purposes(lambda node: fabric.machine_of_node(fabric.index_of_node[node]).gpu)
    for fact in lives.facts:
        recount.see(fact)
    recount.close(now)
    assert recount.wrong == []
    for job_id, state in ledger.jobs.items():
        theirs = recount.of_job(job_id)
        own = life_of(state, now).values()
        useful = sum(used.useful_gpu_s for used in own)
        assert useful == pytest.approx(theirs.get("useful_gpu_s", 0.0), abs=1e-6)
        idle = sum(used.idle_gpu_s for used in own)
        assert idle == pytest.approx(theirs.get("idle_gpu_s", 0.0), abs=1e-6)
        wasted = sum(used.wasted_gpu_s for used in own)
        assert wasted == pytest.approx(theirs.get("lost_gpu_s", 0.0), abs=1e-6)
        held = sum(used.held_gpu_s - used.wasted_gpu_s for used in own)
        assert -1e-6 <= useful <= useful + idle <= held + 1e-6
    for twin, scheduler in lives.twins:
        for job_id, state in ledger.jobs.items():
            again = life_of(scheduler.ledger.jobs[job_id], now)
            assert again == pytest.approx(life_of(state, now)), twin


# ----- by hand


def stage(restarts: int = 0) -> Stage:
    there = Stage(cluster(spines=1, leaves=1, nodes=1))
    there.submit(job("j", 1, 8, checkpoint=Checkpoint(), restarts=restarts, backoff_s=0.0))
    there.started("j")
    return there


def measured(
    there: Stage,
    useful: float,
    idle: float,
    attempt: int = 1,
    span_s: float = 10.0,
    ahead_s: float = 0.0,
) -> Decision:
    """A report on the last seconds, which may go on for some seconds that are still ahead."""
    used, since = MeasuredUse("j", attempt, useful, idle), there.now - span_s
    return there.tell(GpuUseObserved, since=since, until=there.now + ahead_s, gangs=(used,))


def amounts(there: Stage) -> Amounts:
    found = list(life_of(there.state("j"), there.now).values())
    return (
        sum(used.useful_gpu_s for used in found),
        sum(used.idle_gpu_s for used in found),
        sum(used.wasted_gpu_s for used in found),
    )


def test_what_was_told_twice_counts_once() -> None:
    there = stage()
    there.wait(10.0)
    measured(there, 60.0, 20.0)
    measured(there, 60.0, 20.0)
    assert amounts(there) == (60.0, 20.0, 0.0)


def test_more_than_the_gang_ran_is_cut_in_proportion() -> None:
    there = stage()
    there.wait(10.0)
    measured(there, 120.0, 40.0)
    assert amounts(there) == (60.0, 20.0, 0.0)


def test_work_that_must_be_redone_is_wasted_and_neither_useful_nor_idle() -> None:
    there = stage(restarts=1)
    there.wait(10.0)
    measured(there, 80.0, 0.0)
    there.tell(CheckpointSaved, job="j", attempt=1, step=5)
    there.wait(10.0)
    measured(there, 60.0, 20.0)
    there.ended("j", 1)
    assert amounts(there) == (80.0, 0.0, 80.0)


def test_a_report_that_comes_after_the_end_counts_as_far_as_the_attempt_ran() -> None:
    there = stage()
    there.wait(10.0)
    there.ended("j")
    assert there.state("j").phase not in HOLDING
    there.wait(5.0)
    measured(there, 100.0, 20.0)
    measured(there, 100.0, 20.0)
    useful, idle, wasted = amounts(there)
    assert useful + idle == pytest.approx(40.0)  # 5 s of the 10 s that were reported
    assert wasted == 0.0


def test_a_report_on_an_earlier_attempt_or_on_nobody_changes_nothing() -> None:
    there = stage(restarts=1)
    there.wait(10.0)
    there.ended("j", 1)
    there.wait(1.0)
    there.started("j")
    there.wait(10.0)
    assert not measured(there, 80.0, 0.0, attempt=1).facts
    assert amounts(there)[:2] == (0.0, 0.0)


def test_of_a_run_of_more_than_a_quarter_of_an_hour_ago_nothing_is_taken_in() -> None:
    there = stage()
    there.wait(2000.0)
    measured(there, 8 * 2000.0, 0.0, span_s=2000.0)
    assert amounts(there) == (8 * 900.0, 0.0, 0.0)


def test_of_a_report_over_a_checkpoint_only_what_came_after_it_is_wasted() -> None:
    there = stage()
    there.wait(5.0)
    there.tell(CheckpointSaved, job="j", attempt=1, step=5)
    there.wait(5.0)
    measured(there, 80.0, 0.0)
    there.ended("j", 1)
    assert amounts(there) == (40.0, 0.0, 40.0)


def test_of_a_report_that_comes_after_a_failure_only_what_was_saved_counts() -> None:
    there = stage()
    there.wait(5.0)
    there.tell(CheckpointSaved, job="j", attempt=1, step=5)
    there.wait(5.0)
    there.ended("j", 1)
    measured(there, 80.0, 0.0)
    assert amounts(there) == (40.0, 0.0, 40.0)


def test_a_report_of_time_to_come_counts_until_now_and_the_next_one_from_then_on() -> None:
    there = stage()
    for _ in range(2):
        there.wait(10.0)
        measured(there, 80.0, 0.0, ahead_s=100.0)
    assert amounts(there) == (160.0, 0.0, 0.0)
