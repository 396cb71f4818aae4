"""Held and released by hand, and whose a job is: what the controller takes and what it refuses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.control.engine.controller import Controller
from gantree.control.requests.submission_checks import check_user
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    site = cluster(leaves=1, nodes=1)
    controller = Controller(SqliteJournal(tmp_path), Policy(), RecordingCluster, site=site)
    controller.recover()
    yield controller
    controller.close()


def submit(controller: Controller, *jobs: Job, user: str = "") -> None:
    controller.submit(jobs, "/", {}, user)
    controller.step()


def phases(controller: Controller) -> dict[str, str]:
    return {job: str(state.phase) for job, state in controller.ledger.jobs.items()}


def test_a_held_job_waits_with_room_all_around_it_and_starts_when_it_is_released(
    controller: Controller,
) -> None:
    submit(controller, replace(job("a"), held=True), job("b"))
    assert phases(controller) == {"a": "pending", "b": "starting"}
    assert controller.jobs.release("a") == "a"
    controller.step()
    assert phases(controller) == {"a": "starting", "b": "starting"}


def test_a_job_may_be_held_and_released_again_and_again(controller: Controller) -> None:
    submit(controller, job("first", gpus=8), job("a", gpus=8))
    for _ in range(3):
        for _ in range(2):
            assert controller.jobs.hold("a") == "a"
            controller.step()
            assert controller.ledger.jobs["a"].held
        controller.jobs.release("a")
        controller.step()
        assert not controller.ledger.jobs["a"].held


def test_only_what_waits_can_be_held_and_the_refusal_says_the_way_out(
    controller: Controller,
) -> None:
    submit(controller, job("a"))
    with pytest.raises(Conflict, match=r"a is starting.*gantree cancel a.*`hold: true`"):
        controller.jobs.hold("a")
    with pytest.raises(Conflict, match="a is not held: it is starting"):
        controller.jobs.release("a")
    with pytest.raises(NotFound, match="no job b"):
        controller.jobs.hold("b")


def test_what_has_ended_is_neither_held_nor_released(controller: Controller) -> None:
    submit(controller, job("first", gpus=8), job("a", gpus=8))
    controller.jobs.cancel("a")
    controller.step()
    for ask in (controller.jobs.hold, controller.jobs.release):
        with pytest.raises(Conflict, match="a has ended: cancelled"):
            ask("a")


def test_a_held_job_can_be_cancelled(controller: Controller) -> None:
    submit(controller, replace(job("a"), held=True))
    controller.jobs.cancel("a")
    controller.step()
    assert controller.ledger.jobs["a"].phase is Phase.CANCELLED


def test_a_job_that_names_no_user_is_that_of_whoever_hands_it_in(controller: Controller) -> None:
    submit(controller, job("a"), replace(job("b"), user="ada"), user="bob")
    submit(controller, job("c"))
    users = {name: state.spec.user for name, state in controller.ledger.jobs.items()}
    assert users == {"a": "bob", "b": "ada", "c": ""}


@pytest.mark.parametrize("user", ["a\nb", " a", "a" * 257, "\x00"])
def test_a_user_that_could_not_be_printed_is_refused(user: str) -> None:
    with pytest.raises(BadInput, match="user: found"):
        check_user(user)
