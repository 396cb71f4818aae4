"""Jobs that come after others, arrays of jobs, and jobs that are held by hand."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import why
from gantree.formats.job.reader import read_job
from gantree.model.events import HoldRequested, ReleaseRequested
from gantree.model.jobs import Job, Restarts
from gantree.model.orders import StartGang
from gantree.model.phases import Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

FILE = """
name: sweep
array: 0-2
gang: [{role: w, members: 1, each: {gpus: 8}, run: ["true"]}]
---
name: best
after: [sweep]
gang: [{role: w, members: 1, each: {gpus: 1}, run: ["true"]}]
---
name: report
after: [best]
gang: [{role: w, members: 1, each: {gpus: 1}, run: ["true"]}]
"""
SWEEP = ("sweep-0", "sweep-1", "sweep-2")


@pytest.fixture
def stage() -> Stage:
    """Two nodes of eight GPUs."""
    return Stage(cluster(leaves=1, nodes=2, gpus=8))


def jobs_of_file() -> tuple[Job, ...]:
    return read_job(FILE, "jobs.yaml")


def finished(stage: Stage, *names: str, code: int = 0) -> None:
    for name in names:
        stage.started(name)
        stage.ended(name, exit_code=code)


def test_the_jobs_of_an_array_start_each_on_its_own_as_there_is_room(stage: Stage) -> None:
    stage.submit(*jobs_of_file()[:3])
    assert [str(stage.phase(name)) for name in SWEEP] == ["starting", "starting", "pending"]
    finished(stage, "sweep-1")
    assert stage.phase("sweep-2") is Phase.STARTING
    indices = {o.job: o.array_index for o in stage.orders if isinstance(o, StartGang)}
    assert indices == {"sweep-0": 0, "sweep-1": 1, "sweep-2": 2}


def test_a_job_after_an_array_waits_for_all_of_its_jobs(stage: Stage) -> None:
    stage.submit(*jobs_of_file())
    finished(stage, "sweep-0", "sweep-2" if stage.phase("sweep-2") is Phase.STARTING else "sweep-1")
    assert stage.phase("best") is Phase.PENDING
    rest = [name for name in SWEEP if stage.phase(name) is not Phase.SUCCEEDED]
    assert rest[0] in why(stage.scheduler.ledger, "best", stage.now).sentence
    finished(stage, *rest)
    assert stage.phase("best") is Phase.STARTING
    assert stage.phase("report") is Phase.PENDING


def test_one_failed_job_of_an_array_fails_whatever_comes_after_it_and_no_sibling(
    stage: Stage,
) -> None:
    stage.submit(*(replace(spec, restarts=Restarts(0)) for spec in jobs_of_file()))
    finished(stage, "sweep-0", code=1)
    assert stage.phases() == {
        "sweep-0": "failed",
        "sweep-1": "starting",
        "sweep-2": "starting",
        "best": "failed",
        "report": "failed",
    }
    reason = why(stage.scheduler.ledger, "report", stage.now).sentence
    assert "best, which it comes after, failed" in reason


def test_cancelling_a_job_of_an_array_leaves_its_siblings_alone(stage: Stage) -> None:
    stage.submit(*jobs_of_file()[:3])
    stage.cancel("sweep-0")
    stage.ended("sweep-0", exit_code=143)
    assert [str(stage.phase(name)) for name in SWEEP] == ["cancelled", "starting", "starting"]


def test_a_job_after_another_takes_no_place_from_those_that_may_start(stage: Stage) -> None:
    stage.submit(job("a", gpus=1), job("b", 2, 8, priority="serving", after=("a",)))
    stage.submit(job("c", gpus=8))
    assert stage.phases() == {"a": "starting", "b": "pending", "c": "starting"}


def test_a_job_after_a_preempted_one_waits_until_that_has_run_again(stage: Stage) -> None:
    stage.submit(job("a", 2, 8), job("b", gpus=1, after=("a",)))
    stage.started("a")
    stage.submit(job("urgent", gpus=8, priority="serving"))
    stage.ended("a", exit_code=143)
    finished(stage, "urgent")
    assert stage.phase("b") is Phase.PENDING
    finished(stage, "a")
    assert stage.phase("b") is Phase.STARTING


def test_a_held_job_starts_when_it_is_released_and_not_before(stage: Stage) -> None:
    stage.submit(job("first", 2, 8), job("a", gpus=8))
    stage.tell(HoldRequested, job="a")
    finished(stage, "first")
    assert stage.phase("a") is Phase.PENDING
    assert "gantree release a" in why(stage.scheduler.ledger, "a", stage.now).sentence
    stage.tell(ReleaseRequested, job="a")
    assert stage.phase("a") is Phase.STARTING


def test_what_comes_after_a_held_job_waits_with_it(stage: Stage) -> None:
    stage.submit(job("full", 2, 8), job("a", gpus=8), job("b", gpus=1, after=("a",)))
    stage.tell(HoldRequested, job="a")
    finished(stage, "full")
    assert stage.phases() == {"full": "succeeded", "a": "pending", "b": "pending"}
    stage.tell(ReleaseRequested, job="a")
    finished(stage, "a")
    assert stage.phase("b") is Phase.STARTING


def test_a_held_job_of_an_array_holds_up_none_of_its_siblings(stage: Stage) -> None:
    stage.submit(job("full", 2, 8))
    stage.submit(*jobs_of_file()[:3])
    stage.tell(HoldRequested, job="sweep-0")
    finished(stage, "full")
    assert [str(stage.phase(name)) for name in SWEEP] == ["pending", "starting", "starting"]


def test_a_job_after_one_that_has_failed_already_is_not_taken_in(stage: Stage) -> None:
    stage.submit(job("a", gpus=8))
    finished(stage, "a", code=1)
    stage.submit(job("b", gpus=1, after=("a",)))
    assert "which failed" in stage.scheduler.ledger.rejected["b"]
