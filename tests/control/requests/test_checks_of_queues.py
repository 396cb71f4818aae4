"""Which check a submitted job gets, and where none can be carried out."""

from dataclasses import replace
from pathlib import Path

import pytest

from gantree.control.engine.controller import Controller
from gantree.control.requests.submission_checks import of_unchecked, with_check
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import Unsupported
from gantree.model.jobs import Check, Job, Role, Shape
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster

POLICY = Policy(queues=(QueueRule("research", check=Check(60.0)), QueueRule("other")))


def in_queue(queue: str, check: Check | None = None) -> Job:
    return replace(job("j", members=2, gpus=8), queue=queue, check=check)


@pytest.mark.parametrize(
    ("asked", "check"),
    [
        (in_queue("research"), Check(60.0)),
        (in_queue("research", Check(5.0)), Check(5.0)),
        (in_queue("other"), None),
        (Job("m", (Role("w", 1, Shape(mig="1g.10gb")),), queue="research"), None),
    ],
)
def test_the_queue_says_what_the_job_does_not(asked: Job, check: Check | None) -> None:
    assert with_check(asked, POLICY, can_check=True).check == check


def test_an_executor_that_checks_nothing_refuses_a_check_with_the_way_out() -> None:
    with pytest.raises(Unsupported, match="submit a GangJob with `check`"):
        with_check(in_queue("other", Check(60.0)), POLICY, can_check=False)


def test_a_controller_refuses_it_at_submit_and_takes_nothing(tmp_path: Path) -> None:
    class Unchecking(RecordingCluster):
        checks_links = False

    journal = SqliteJournal(tmp_path)
    controller = Controller(journal, Policy(), Unchecking, site=cluster(leaves=1, nodes=2))
    controller.recover()
    try:
        with pytest.raises(Unsupported, match="job j: check: this executor does not check links"):
            controller.submit([replace(job("j"), check=Check(60.0))], None, {})
        assert not controller.ledger.jobs
    finally:
        controller.close()


def test_the_check_of_a_queue_is_left_out_there_with_a_warning() -> None:
    asked = in_queue("research")
    assert with_check(asked, POLICY, can_check=False).check is None
    (warning,) = of_unchecked([asked, in_queue("other")], POLICY)
    assert warning == "j: the check of queue research is not carried out by this executor"
