"""Who may do what with services, and what a router may read."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gantree.control.requests.submissions import JobSubmission
from gantree.model.services import ReplicaCount, ServiceSpec
from gantree.testing.builders import job
from support.front import Front
from support.permissions import JOB, front_with_jobs


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front_with_jobs(tmp_path_factory.mktemp("front")) as front:
        yield front


def test_a_router_is_told_of_services_and_of_nothing_else(front: Front) -> None:
    routes = {
        asker: {row["service"] for row in front.ask(asker, "GET", "/v1/routes").json["services"]}
        for asker in ("rolf", "quinn", "otto")
    }
    assert routes["rolf"] == routes["quinn"] == routes["otto"] >= {"chat"}
    token = front.token("otto", "router", "vision")
    assert front.ask("", "GET", "/v1/routes", token=token).json["services"] == []
    assert front.ask("", "GET", "/v1/jobs", token=token).status == 403
    assert front.ask("", "GET", "/v1/queues", token=token).status == 403


def test_of_a_service_one_is_told_what_he_may_see(front: Front) -> None:
    role = replace(job("x").roles[0], env=(("K", "v-of-talk"),), run=("serve",))
    talk = replace(job("talk"), queue="research", user="alice", roles=(role,))
    handed_in = JobSubmission((), "/", services=[ServiceSpec("talk", talk, ReplicaCount(1, 2))])
    front.on_thread(lambda controller: controller.submit_batch([handed_in]))
    shown = {
        asker: [
            "talk" in front.ask(asker, "GET", "/v1/services").text,
            "v-of-talk" in front.ask(asker, "GET", "/v1/services/talk").text,
            "ServiceAccepted" in front.ask(asker, "GET", "/v1/facts").text,
            "v-of-talk" in front.ask(asker, "GET", "/v1/facts").text,
        ]
        for asker in ("eve", "bob", "vera", "alice", "otto")
    }
    assert shown["eve"] == shown["bob"] == [False] * 4
    assert shown["vera"] == [True, False, True, False]
    assert shown["alice"] == shown["otto"] == [True] * 4
    update = {"jobs": [{**JOB, "kind": "service", "name": "talk", "hold": None}]}
    refused = front.ask("bob", "POST", "/v1/jobs", update)
    assert (refused.status, "service of somebody else" in refused.text) == (403, True)
    assert front.ask("quinn", "POST", "/v1/jobs", update).status == 201
    assert front.ask("otto", "GET", "/v1/services/talk").json["user"] == "alice"
