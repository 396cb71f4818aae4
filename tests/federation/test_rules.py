"""The small rules of the front, of its rounds of questions, and of its store."""

from dataclasses import replace
from pathlib import Path

import pytest

from gantree.federation.jobs import store as of_store
from gantree.federation.jobs.choice import Offer
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.federation.jobs.rounds import best_offer
from gantree.federation.jobs.store import Store
from gantree.model.errors import BadInput, Conflict
from support.federation.desk import Desk
from support.federation.lives import federation


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.join("a", "b")
    return desk


def waiting(desk: Desk, name: str = "j") -> FederatedJob:
    """A job that no cluster has been asked about."""
    (job,) = desk.front.submit([(FederatedJob(name, name, {}), [])])
    return job


def test_a_call_that_is_under_way_is_not_made_again(desk: Desk) -> None:
    desk.submit()
    desk.take("submit", "a")
    desk.pass_s(9.0)
    assert not desk.has("submit", "a")


def test_a_cluster_that_answers_without_a_lease_gets_no_jobs() -> None:
    desk = Desk()
    waiting(desk)
    desk.lease("a")
    assert not desk.has("forecast", "a")
    desk.pass_s(0.1)
    desk.lease("a")
    assert desk.has("forecast", "a")


def test_jobs_of_one_name_get_other_ids_in_one_submission_too(desk: Desk) -> None:
    jobs = [(FederatedJob("j", "j", {}), list[Offer]()) for _ in range(2)]
    assert [job.job for job in desk.front.submit(jobs)] == ["j", "j-2"]
    assert waiting(desk).job == "j-3"


def test_the_best_of_all_that_answer_gets_the_job(desk: Desk) -> None:
    job = waiting(desk)
    desk.offer("b", starts_at=100.0)
    assert job.stage is Stage.CHOOSING  # a is still to answer
    desk.offer("a", starts_at=50.0)
    assert (job.stage, job.cluster) == (Stage.SENDING, "a")


def test_a_job_that_nobody_can_start_says_so_and_is_asked_about_again_later(desk: Desk) -> None:
    job = waiting(desk)
    for cluster, error in (("a", BadInput("no queue q")), ("b", Conflict("a job has that name"))):
        desk.front.refused(desk.take("forecast", cluster), error, desk.now)
    reason = "a cannot start it (no queue q); b cannot start it (a job has that name)"
    assert [each for _, each in job.reasons] == [reason]
    desk.pass_s(9.0)
    assert not desk.has("forecast", "a")
    desk.pass_s(1.0)
    for cluster, error in (("a", BadInput("no queue q")), ("b", Conflict("a job has that name"))):
        desk.front.refused(desk.take("forecast", cluster), error, desk.now)
    assert [each for _, each in job.reasons] == [reason]


def test_what_a_cluster_has_by_an_older_assignment_is_cancelled_there(desk: Desk) -> None:
    job = desk.place()
    job.number = 2
    desk.pass_s(5.0)
    desk.lease("a", ("j@a", "f/j/1"))
    assert desk.take("cancel", "a").came_by == "f/j/1"


def test_a_job_that_was_moved_goes_where_its_checkpoints_are() -> None:
    world = federation("a", "b", "c")
    clusters = [
        replace(each, storage=("/mnt",) if each.name != "b" else ()) for each in world.clusters
    ]
    job = FederatedJob("j", "j", {}, checkpoint="/mnt/j", before="a")
    offers = [Offer("b", 0.0), Offer("c", 60.0)]
    best, reason = best_offer(replace(world, clusters=tuple(clusters)), job, offers)
    assert best == offers[1]
    assert "goes on from its last checkpoint in /mnt/j" in reason
    best, reason = best_offer(world, job, offers)
    assert best == offers[0]
    assert "starts from the beginning" in reason


def test_of_ended_jobs_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_store, "ENDED_KEPT", 2)
    store = Store(tmp_path / "f")
    ended = [FederatedJob(f"e{number}", "e", {}, stage=Stage.ENDED) for number in range(4)]
    store.save([FederatedJob("live", "live", {}), *ended])
    store.prune()
    assert [job.job for job in store.jobs()] == ["live", "e2", "e3"]
    store.close()


def test_the_name_of_a_service_that_has_ended_is_free_again(desk: Desk) -> None:
    desk.place("chat", kind="service")
    desk.front.cancel("chat")
    desk.keep("b", 21.0)
    first = desk.front.jobs["chat"]
    assert first.stage is Stage.ENDED  # a is lost, and has it still
    again = desk.submit("chat", to="b", kind="service")
    assert (again.job, again.number, again.cluster) == ("chat", 2, "b")
    desk.start()
    again = desk.front.jobs["chat"]
    desk.lease("a", ("chat", "f/chat/1"), service=True)
    cancel = desk.take("cancel", "a")
    assert (cancel.remote, cancel.came_by, again.cluster) == ("chat", "f/chat/1", "b")
    desk.submit("train")
    with pytest.raises(Conflict, match="train is the id of a job"):
        desk.submit("train", kind="service")


def test_an_earlier_service_of_a_name_is_not_taken_for_the_new_one(desk: Desk) -> None:
    desk.place("chat", kind="service")
    desk.front.cancel("chat")
    desk.keep("b", 21.0)
    desk.front.submit([(FederatedJob("chat", "chat", {}, kind="service"), [])])
    desk.front.failed(desk.take("lease", "a"), "no answer", desk.now)
    desk.pass_s(5.0)
    desk.lease("a", ("chat", "f/chat/1"), service=True)
    assert desk.front.jobs["chat"].stage is Stage.CHOOSING
    assert desk.has("cancel", "a")
