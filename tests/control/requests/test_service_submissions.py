"""Services that are submitted to a controller: names, owners, executors; and commands about them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.api.views.service_view import service_row
from gantree.control.engine.controller import Controller
from gantree.control.requests.submission_checks import Receipt
from gantree.control.requests.submissions import JobSubmission
from gantree.core.explain.explain import why
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import BadInput, Conflict, Forbidden, GantreeError, Unsupported
from gantree.model.services import ReplicaCount, Routing, ServiceSpec
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster

CHAT = ServiceSpec("chat", replace(job("chat"), priority="batch"), ReplicaCount(1, 3))


def controller_on(tmp_path: Path, kind: type[RecordingCluster] = RecordingCluster) -> Controller:
    site = cluster(leaves=1, nodes=2)
    controller = Controller(SqliteJournal(tmp_path), Policy(), kind, site=site)
    controller.recover()
    return controller


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = controller_on(tmp_path)
    yield controller
    controller.close()


def submit(controller: Controller, spec: ServiceSpec = CHAT, **fields: object) -> Receipt:
    """Submit a service and decide about it."""
    given: dict[str, object] = {"jobs": (), "services": [spec], "user": "ann", **fields}
    (outcome,) = controller.submit_batch([JobSubmission(**given)])  # type: ignore[arg-type]  # as each test needs
    if isinstance(outcome, GantreeError):
        raise outcome
    controller.step()
    return outcome


def test_a_service_is_taken_under_its_name_with_its_replicas(controller: Controller) -> None:
    assert submit(controller).services == ("chat",)
    service = controller.ledger.services["chat"]
    assert (list(service.replicas), service.spec.replica.user) == (["chat.1"], "ann")


def test_who_updates_a_service_does_not_become_its_owner(controller: Controller) -> None:
    submit(controller)
    submit(controller, replace(CHAT, port=8000), user="otto", may_update=lambda _: True)
    service = controller.ledger.services["chat"]
    assert (service.revision, service.spec.replica.user) == (2, "ann")


def test_a_service_of_somebody_else_stays_as_it_is(controller: Controller) -> None:
    submit(controller)
    with pytest.raises(Forbidden, match="chat is a service of somebody else"):
        submit(controller, replace(CHAT, port=8000), may_update=lambda _: False)
    assert controller.ledger.services["chat"].spec.port is None


def test_overrides_name_queue_and_priority_are_for_services_too(controller: Controller) -> None:
    submit(controller, overrides={"name": "talk", "queue": "research", "priority": 7})
    spec = controller.ledger.services["talk"].spec
    assert (spec.name, spec.replica.name) == ("talk", "talk")
    assert (spec.replica.queue, spec.replica.priority) == ("research", 7)


def test_jobs_get_no_id_of_a_service_or_of_a_replica_that_was_or_is(controller: Controller) -> None:
    submit(controller)
    controller.services.scale("chat", 2)
    controller.step()
    named = [job("chat"), job("chat.1"), job("chat.2"), job("chat.9")]
    taken = controller.submit(named, None, {}).jobs
    assert [each.job for each in taken] == ["chat-2", "chat.1-2", "chat.2-2", "chat.9"]


def test_a_service_gets_no_id_of_a_job(controller: Controller) -> None:
    controller.submit([job("chat")], None, {})
    controller.step()
    with pytest.raises(Conflict, match="chat is the id of a job"):
        submit(controller)


def test_a_service_that_ends_is_not_updated(controller: Controller) -> None:
    submit(controller)
    controller.services.cancel("chat")
    controller.step()
    service = controller.ledger.services["chat"]
    if service.is_live:
        with pytest.raises(Conflict, match="chat ends"):
            submit(controller)
    else:
        assert submit(controller).services == ("chat",)


def test_cancelled_twice_a_service_is_cancelled_once(controller: Controller) -> None:
    submit(controller)
    controller.services.cancel("chat")
    controller.step()
    before = len(controller.journal.read_inbox(0, 100))
    assert controller.ledger.services["chat"].is_live
    assert controller.services.cancel("chat") == "chat"
    controller.step()
    assert len(controller.journal.read_inbox(0, 100)) == before


def test_a_number_outside_the_bounds_is_refused(controller: Controller) -> None:
    submit(controller)
    with pytest.raises(BadInput, match="found 4; allowed for chat: 1 to 3"):
        controller.services.scale("chat", 4)


def test_an_executor_that_runs_none_refuses_and_says_the_way_out(tmp_path: Path) -> None:
    class Without(RecordingCluster):
        runs_services = False

    controller = controller_on(tmp_path, Without)
    with pytest.raises(Unsupported, match=r"service chat: .* apply a GangService"):
        submit(controller)
    assert not controller.ledger.services
    controller.close()


def test_the_forecast_of_a_service_is_that_of_a_replica(controller: Controller) -> None:
    event = controller.first_event(JobSubmission((), services=[CHAT]))
    assert (event.job, event.spec.name) == ("chat.1", "chat.1")
    assert not controller.ledger.services


def with_models(name: str, *models: str) -> ServiceSpec:
    """A service of that name, with these names of models."""
    replica = replace(CHAT.replica, name=name)
    return replace(CHAT, name=name, replica=replica, routing=Routing(models=models))


def test_a_model_that_another_live_service_has_is_warned_of(controller: Controller) -> None:
    tiny = with_models("chat", "tiny", "chat")
    assert submit(controller, tiny).warnings == ()
    assert submit(controller, tiny).warnings == ()
    other = with_models("other", "tiny", "large")
    (warning,) = submit(controller, other).warnings
    expected = "requests for the model tiny go to service chat, which had it first, until that ends"
    assert warning == f"other: {expected}"
    ledger, now = controller.ledger, controller.clock()
    assert "the model tiny go to service chat" in why(ledger, "other", now).sentence
    assert "the model" not in why(ledger, "chat", now).sentence
    assert service_row(ledger, ledger.services["other"])["taken_models"] == {"tiny": "chat"}
    two = [with_models(name, "own") for name in ("third", "fourth")]
    both = submit(controller, services=two)
    assert both.warnings == (
        "fourth: requests for the model own go to service third, which had it first, until that ends",
    )
