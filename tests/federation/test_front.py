"""What the front decides, call by call, where the network is at its worst."""

import pytest

from gantree.federation.jobs.federated_job import Stage
from gantree.model.errors import BadInput, Conflict, NotFound, Stale, Unauthenticated
from support.federation.desk import Desk
from support.federation.lives import LEASE_S

OVER_S = LEASE_S + 5.0


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.join("a", "b")
    return desk


def test_a_silent_cluster_keeps_its_job_until_its_lease_must_be_over(desk: Desk) -> None:
    job = desk.place()
    desk.keep("b", OVER_S - 1.0)
    assert (job.stage, job.cluster) == (Stage.PLACED, "a")
    desk.keep("b", 1.0)
    assert job.stage is Stage.CHOOSING
    assert desk.store.clusters()["a"]["number"] == 2
    desk.offer("b")
    assert (job.stage, job.cluster, job.number, job.lease) == (Stage.SENDING, "b", 2, 1)


def test_renewals_that_nobody_answers_do_not_make_the_lease_longer(desk: Desk) -> None:
    job = desk.place()
    for _ in range(int(OVER_S) + 1):
        desk.pass_s(1.0)
        if desk.has("lease", "a"):
            desk.front.failed(desk.take("lease", "a"), "no route", desk.now)
    assert job.stage is Stage.CHOOSING


def test_a_request_that_broke_off_is_made_again_and_a_later_refusal_settles_nothing(
    desk: Desk,
) -> None:
    job = desk.submit()
    first = desk.take("submit", "a")
    desk.front.failed(first, "no answer", desk.now)
    desk.pass_s(3.0)
    second = desk.take("submit", "a")
    assert second.assignment == first.assignment
    desk.front.refused(second, BadInput("no such queue"), desk.now)  # the first may still arrive
    assert (job.stage, job.cluster) == (Stage.SENDING, "a")


def test_a_first_refusal_sends_a_job_elsewhere_but_not_after_a_restart(desk: Desk) -> None:
    job = desk.submit()
    desk.front.refused(desk.take("submit", "a"), BadInput("no such queue"), desk.now)
    assert job.stage is Stage.CHOOSING
    desk.submit("k")
    desk.take("submit", "a")
    desk.start()
    desk.join("a", "b")
    desk.front.refused(desk.take("submit", "a"), BadInput("no such queue"), desk.now)
    assert desk.front.jobs["k"].stage is Stage.SENDING


def test_what_was_refused_for_lack_of_a_lease_or_a_token_stays_where_it_is(desk: Desk) -> None:
    job = desk.submit()
    for error in (Conflict("lease 1 runs out"), Unauthenticated("unknown token")):
        desk.front.refused(desk.take("submit", "a"), error, desk.now)
        desk.pass_s(3.0)
        assert job.stage is Stage.SENDING


def test_a_list_from_before_the_end_of_a_lease_clears_nothing(desk: Desk) -> None:
    desk.place()
    desk.pass_s(5.0)
    old = desk.take("lease", "a")
    desk.keep("b", OVER_S)
    desk.lease("a", call=old)  # it has no stray: the cluster made it long ago
    assert not desk.front.leases["a"].is_cleared


def test_a_cluster_that_returns_is_cleared_of_what_was_moved_before_it_gets_a_lease(
    desk: Desk,
) -> None:
    desk.place()
    desk.keep("b", OVER_S)
    desk.front.failed(desk.take("lease", "a"), "no answer", desk.now)
    while not desk.has("cancel", "a"):
        desk.pass_s(1.0)
        if desk.has("lease", "a"):
            call = desk.take("lease", "a")
            assert call.renewal is not None
            assert (call.renewal.number, call.renewal.stamp) == (2, None)
            desk.lease("a", ("j@a", "f/j/1"), call=call)
    assert not desk.front.leases["a"].is_cleared
    assert desk.take("cancel", "a").remote == "j@a"
    desk.pass_s(5.0)
    desk.lease("a")
    call = desk.take("lease", "a")
    assert call.renewal is not None
    assert call.renewal.stamp is not None


def test_a_cluster_whose_daemon_alone_ends_jobs_keeps_them_until_an_operator_says_that_it_is_lost(
    desk: Desk,
) -> None:
    job = desk.place()
    desk.pass_s(5.0)
    desk.lease("a", ("j@a", "f/j/1"), by="daemon")
    desk.keep("b", 10 * LEASE_S)
    assert (job.stage, job.cluster) == (Stage.PLACED, "a")
    with pytest.raises(Conflict, match="b answers"):
        desk.front.confirm_lost("b", desk.now)
    with pytest.raises(NotFound, match="no cluster 'c'"):
        desk.front.confirm_lost("c", desk.now)
    desk.front.confirm_lost("a", desk.now)
    desk.pass_s(0.0)
    assert job.stage is Stage.CHOOSING


def test_a_service_is_moved_as_soon_as_its_cluster_is_lost_and_updated_where_it_is(
    desk: Desk,
) -> None:
    desk.submit("chat", kind="service")
    desk.front.answered(desk.take("submit", "a"), {"jobs": [{"job": "chat"}]}, desk.now)
    desk.submit("chat", to="b", kind="service")
    job = desk.front.jobs["chat"]
    assert (job.stage, job.cluster, job.number) == (Stage.SENDING, "a", 2)
    desk.pass_s(5.0)
    desk.lease("a", ("chat", "f/chat/1"))  # the update is still under way
    assert not desk.has("cancel", "a")
    assert job.stage is Stage.SENDING
    desk.keep("b", 19.0)
    assert job.cluster == "a"
    desk.keep("b", 2.0)
    assert desk.front.jobs["chat"].stage is Stage.CHOOSING
    assert desk.front.leases["a"].number == 1


def test_a_service_that_no_other_cluster_has_yet_stays_where_it_is(desk: Desk) -> None:
    job = desk.place("chat", kind="service")
    for _ in range(21):
        desk.pass_s(1.0)
    assert desk.front.jobs["chat"].stage is Stage.CHOOSING
    desk.lease("a", ("chat", "f/chat/1"), service=True)
    assert (job.stage, job.cluster, job.remote) == (Stage.PLACED, "a", "chat")
    assert not desk.has("cancel", "a")


def test_a_service_that_was_taken_back_is_cancelled_as_what_its_cluster_has(desk: Desk) -> None:
    job = desk.place("chat", kind="service")
    desk.keep("b", 21.0)
    desk.offer("b")
    assert (job.cluster, job.number) == ("b", 2)
    desk.front.failed(desk.take("submit", "b"), "no answer", desk.now)
    for _ in range(21):
        desk.pass_s(1.0)
    desk.front.failed(desk.take("lease", "a"), "no answer", desk.now)
    desk.pass_s(5.0)
    desk.lease("a", ("chat", "f/chat/1"), service=True)
    assert (job.stage, job.cluster) == (Stage.PLACED, "a")
    desk.front.cancel("chat")
    assert desk.take("cancel", "a").came_by == "f/chat/1"


def test_a_service_that_another_cluster_has_is_cancelled_as_what_it_came_by(desk: Desk) -> None:
    desk.place("chat", kind="service")
    desk.keep("b", 21.0)
    desk.offer("b")
    desk.front.failed(desk.take("lease", "a"), "no answer", desk.now)
    desk.pass_s(5.0)
    desk.lease("a", ("chat", "f/chat/1"), service=True)
    cancel = desk.take("cancel", "a")
    assert (cancel.remote, cancel.is_service, cancel.came_by) == ("chat", True, "f/chat/1")
    assert desk.front.leases["a"].is_cleared  # a service keeps no cluster from its lease


def test_a_service_that_its_cluster_has_ended_is_started_anew(desk: Desk) -> None:
    desk.place("chat", kind="service")
    desk.pass_s(5.0)
    desk.lease("a")
    desk.front.answered(desk.take("look", "a"), {"phase": "cancelled"}, desk.now)
    assert desk.front.jobs["chat"].stage is Stage.CHOOSING
    desk.offer("a")
    desk.offer("b")
    assert desk.front.jobs["chat"].number == 2


def test_what_is_being_sent_under_a_lease_that_is_over_is_sent_anew(desk: Desk) -> None:
    desk.place()
    desk.submit("chat", kind="service")
    for _ in range(int(OVER_S) + 1):
        desk.pass_s(1.0)
        if desk.has("lease", "a"):  # it answers, and does not get its lease
            call = desk.take("lease", "a")
            desk.front.leases["a"].answered_at_s = desk.now
            desk.front.failed(call, "no", desk.now)
    assert {job.stage for job in desk.front.jobs.values()} == {Stage.CHOOSING}


def test_a_cancelled_job_of_a_lost_cluster_has_ended_with_its_lease(desk: Desk) -> None:
    job = desk.place()
    desk.front.cancel("j")
    desk.keep("b", OVER_S)
    assert (job.stage, job.outcome) == (Stage.ENDED, "cancelled")


def test_all_that_was_decided_survives_a_kill(desk: Desk) -> None:
    desk.place()
    desk.submit("k", to="b")
    before = {name: job.to_json() for name, job in desk.front.jobs.items()}
    desk.start()
    assert {name: job.to_json() for name, job in desk.front.jobs.items()} == before


def waiting(desk: Desk, seconds: float) -> None:
    """Let time pass in which the job waits in its cluster, and the other one answers, too."""
    for _ in range(int(seconds)):
        desk.pass_s(1.0)
        if desk.has("lease", "a"):
            desk.lease("a", ("j@a", "f/j/1"), phase="pending")
        if desk.has("lease", "b"):
            desk.lease("b")


def test_a_job_that_has_only_waited_goes_where_it_starts_at_once_after_its_cluster_has_ended_it(
    desk: Desk,
) -> None:
    job = desk.place()
    waiting(desk, 50)
    assert not desk.has("forecast", "b")
    waiting(desk, 20)
    desk.offer("b")
    assert job.moving
    look = desk.take("look", "a")
    desk.front.answered(look, {"phase": "pending", "held": False, "version": "v1"}, desk.now)
    desk.pass_s(3.0)
    cancel = desk.take("cancel", "a")
    assert (cancel.remote, cancel.version) == ("j@a", "v1")
    desk.front.answered(cancel, {}, desk.now)
    assert (job.stage, job.cluster) == (Stage.PLACED, "a")  # not before it has ended there
    desk.pass_s(5.0)
    desk.lease("a")
    desk.front.answered(desk.take("look", "a"), {"phase": "cancelled", "reason": ""}, desk.now)
    assert (job.stage, job.before) == (Stage.CHOOSING, "")
    reasons = [reason for _, reason in job.reasons]
    assert "it has waited in a for 1 min, and b starts it at once" in reasons
    desk.offer("a", starts_at=100.0)
    desk.offer("b")
    assert (job.stage, job.cluster, job.number, job.moving) == (Stage.SENDING, "b", 2, False)


def test_a_job_that_starts_before_it_is_moved_stays(desk: Desk) -> None:
    job = desk.place()
    waiting(desk, 70)
    desk.offer("b")
    look = desk.take("look", "a")
    desk.front.answered(look, {"phase": "pending", "held": False, "version": "v1"}, desk.now)
    desk.pass_s(3.0)
    desk.front.refused(desk.take("cancel", "a"), Stale("it has changed"), desk.now)
    desk.pass_s(3.0)
    look = desk.take("look", "a")
    desk.front.answered(look, {"phase": "running", "held": False, "version": "v2"}, desk.now)
    assert (job.stage, job.cluster, job.moving) == (Stage.PLACED, "a", False)
    assert not desk.has("cancel", "a")


def test_a_job_that_no_other_cluster_starts_at_once_goes_on_waiting(desk: Desk) -> None:
    job = desk.place()
    waiting(desk, 70)
    desk.offer("b", 50.0)
    assert not job.moving
    assert not desk.has("forecast", "b")
