"""Which job a word means: to a program, for which an id is an id, and to a person, who means the live one."""

import pytest

from gantree.control.requests.job_ids import job_of, live_job_of
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.errors import Conflict
from gantree.model.events import CancelRequested, JobSubmitted
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def everybody(_: JobState) -> bool:
    return True


def stage_of(*jobs: tuple[str, str]) -> Stage:
    """A site that is full, with jobs that wait: (id, name)."""
    stage = Stage(cluster(leaves=1, nodes=1, gpus=8))
    stage.submit(job("full", 1, 8))
    for job_id, name in jobs:
        stage.tell(JobSubmitted, job=job_id, spec=job(name, 1, 8))
    return stage


def end(stage: Stage, *jobs: str) -> Ledger:
    for each in jobs:
        stage.tell(CancelRequested, job=each)
    return stage.scheduler.ledger


ALL = (("a", "a"), ("a-2", "a"), ("a-3", "a"))


@pytest.mark.parametrize(
    ("ended", "program", "person"),
    [
        (("a-2", "a-3"), "a", "a"),
        (("a", "a-3"), "a", "a-2"),
        (("a", "a-2", "a-3"), "a", None),
    ],
)
def test_a_word_that_is_an_id_and_a_name(
    ended: tuple[str, ...], program: str, person: str | None
) -> None:
    ledger = end(stage_of(*ALL), *ended)
    assert job_of(ledger, "a") == program
    assert live_job_of(ledger, "a", everybody) == person


@pytest.mark.parametrize(
    ("ended", "program"), [((), "x3"), (("x3",), "x2"), (("x1", "x2", "x3"), "x3")]
)
def test_a_name_that_is_no_id_means_the_newest_live_job_to_a_program(
    ended: tuple[str, ...], program: str
) -> None:
    ledger = end(stage_of(("x1", "x"), ("x2", "x"), ("x3", "x")), *ended)
    assert job_of(ledger, "x") == program


def test_several_live_jobs_of_a_name_are_a_conflict_that_lists_them() -> None:
    ledger = end(stage_of(*ALL), "a")
    with pytest.raises(Conflict, match=r"^2 live jobs are named a: a-2, a-3; give the id of one$"):
        live_job_of(ledger, "a", everybody)


def test_jobs_that_one_may_not_see_are_not_meant() -> None:
    ledger = end(stage_of(*ALL), "a")

    def sees(state: JobState) -> bool:
        return state.job == "a-3"

    assert live_job_of(ledger, "a", sees) == "a-3"


def test_a_word_that_no_job_has_means_none() -> None:
    ledger = stage_of().scheduler.ledger
    assert (job_of(ledger, "b"), live_job_of(ledger, "b", everybody)) == (None, None)
