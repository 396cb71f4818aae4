"""Who may open which page: whoever the API would answer with the same, and nobody else."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gantree.api.access.permissions import KEY
from gantree.model.events import (
    EndedJobsDue,
    HealthObserved,
    JobSubmitted,
    RepairObserved,
    ServiceSubmitted,
)
from gantree.model.repairs import RepairState
from gantree.model.services import ReplicaCount, ServiceSpec
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.web.pages import assets, login, routers
from support.front import Front

ACCESS = """
users:
  vera: {grants: {role: viewer}}
  oda: {grants: {role: operator}}
  uma: {grants: {role: user, queue: default}}
  nils: {}
"""
PAGES = (
    "/",
    "/queue",
    "/queues",
    "/services",
    "/cluster",
    "/gantt",
    "/history",
    "/fleet",
    "/nodes",
    "/nodes/n0",
    "/jobs/a",
    "/submit",
)
PUBLIC = (assets.router, login.router)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    place = tmp_path_factory.mktemp("front")
    with Front(place, ACCESS, cluster(leaves=1, nodes=1), Policy(), routers()) as front:
        front.on_thread(lambda controller: controller.submit([job("a")], "/", {}))
        yield front


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_for_those_whom_the_api_would_tell_the_same(front: Front, page: str) -> None:
    assert front.ask("", "GET", page).status == 303
    refused = front.ask("nils", "GET", page)
    assert (refused.status, "has no role here" in refused.text) == (403, True)
    assert "Log out" in refused.text, "or nobody could come in under another name"
    assert front.ask("vera", "GET", page).status == (403 if page == "/submit" else 200)
    assert front.ask("uma", "GET", page).status == (404 if page == "/jobs/a" else 200)


def test_who_may_hand_in_nothing_is_not_asked_to(front: Front) -> None:
    for page in ("/", "/queue?list=ended"):
        assert "/submit" in front.ask("uma", "GET", page).text
        assert "/submit" not in front.ask("vera", "GET", page).text


def test_a_service_has_a_page_for_those_who_may_see_its_jobs(front: Front) -> None:
    spec = ServiceSpec("chat", replace(job("chat"), user="uwe"), ReplicaCount(1, 2))
    submitted = ServiceSubmitted(id="submitted/chat", observed_at=0.0, service="chat", spec=spec)
    front.on_thread(lambda controller: controller.inbox.append([submitted]))
    page = front.ask("vera", "GET", "/services/chat")
    assert page.status == 200
    for text in ("chat.1", "0 of 1 wanted replica is ready", "user uwe", "No router has reported"):
        assert text in page.text
    assert 'id="scale"' not in page.text
    assert 'id="scale"' in front.ask("oda", "GET", "/services/chat").text
    assert "chat" in front.ask("vera", "GET", "/services").text
    assert "chat" not in front.ask("uma", "GET", "/services").text
    for name in ("chat", "no"):
        assert front.ask("uma", "GET", f"/services/{name}").status == 404
    front.on_thread(lambda controller: controller.services.cancel("chat"))
    gone = front.ask("oda", "GET", "/services/chat")
    assert (gone.status, ">ending<" in gone.text, 'id="scale"' in gone.text) == (200, True, False)


def test_a_job_that_was_rejected_has_a_page_that_says_why(front: Front) -> None:
    wrong = replace(job("wrong"), after=("nobody",))
    submitted = JobSubmitted(id="submitted/wrong", observed_at=0.0, job="wrong", spec=wrong)
    front.on_thread(lambda controller: controller.inbox.append([submitted]))
    told = front.ask("vera", "GET", "/jobs/wrong")
    assert (told.status, "it comes after nobody" in told.text) == (200, True)


def test_a_job_that_is_history_has_a_page_of_what_the_journal_still_has(front: Front) -> None:
    old = replace(job("old", 2, 8), user="umberto")
    front.on_thread(lambda controller: controller.submit([old], "/", {}))
    front.on_thread(lambda controller: controller.jobs.cancel("old"))
    due = EndedJobsDue(id="due", observed_at=0.0, keep=0, ended_before=4e9)
    front.on_thread(lambda controller: controller.inbox.append([due]))
    told = front.ask("vera", "GET", "/jobs/old")
    assert told.status == 200
    for text in ("ended long ago", "umberto", "Submitted to default", "Ended: cancelled"):
        assert text in told.text
    assert front.ask("uma", "GET", "/jobs/old").status == 404


def test_every_page_says_what_it_needs(front: Front) -> None:
    made = [router for router in routers() if router not in PUBLIC]
    opened = [route for router in made for route in router(front.backend).routes]
    assert len(opened) > len(PAGES)
    assert [
        route for route in opened if KEY not in (getattr(route, "openapi_extra", None) or {})
    ] == []


def test_a_node_that_is_kept_in_use_though_it_is_unhealthy_is_shown_with_its_sign(
    front: Front,
) -> None:
    kept = "1 node is out already, the limit is a fifth of 1 nodes"
    said = HealthObserved(
        id="sign", observed_at=0.0, node="n0", source="dcgm", reason="GPU 3: XID 79", kept=kept
    )
    front.on_thread(lambda controller: controller.inbox.append([said]))
    for page in ("/nodes", "/nodes/n0"):
        told = front.ask("vera", "GET", page).text
        assert "GPU 3: XID 79" in told and f"kept in use: {kept}" in told, page
    assert "dcgm, since" in front.ask("vera", "GET", "/nodes/n0").text


def test_the_page_of_a_node_shows_how_far_its_repair_has_come(front: Front) -> None:
    steps = ("reset", "reboot", "burn-in")
    said = RepairObserved(
        id="repair",
        observed_at=0.0,
        node="n0",
        state=RepairState.RUNNING,
        sign="GPU 3: XID 79",
        steps=steps,
        step=1,
        reason="try 2 of 2: exit code 3",
    )
    front.on_thread(lambda controller: controller.inbox.append([said]))
    told = front.ask("vera", "GET", "/nodes/n0").text
    assert "reboot, 2 of 3" in told and "try 2 of 2: exit code 3" in told
    assert "cordoned" in told
    done = replace(said, id="repaired", state=RepairState.SUCCEEDED, step=2, reason="")
    front.on_thread(lambda controller: controller.inbox.append([done]))
    assert "burn-in, 3 of 3" not in front.ask("vera", "GET", "/nodes/n0").text


def test_pages_of_nodes_show_which_links_carry_less_by_whom_and_since_when(front: Front) -> None:
    half = {
        "link": "node:n0",
        "health": 0.5,
        "load": 0.7,
        "reason": "1 of 2 cables",
        "source": "noc",
    }
    assert front.ask("oda", "POST", "/v1/links/degrade", half).status == 202
    for page in ("/nodes", "/nodes/n0"):
        assert "node:n0 carries 50 %, 70 % busy" in front.ask("vera", "GET", page).text
    one = front.ask("vera", "GET", "/nodes/n0").text
    assert "1 of 2 cables" in one
    assert "noc, since" in one
    assert front.ask("oda", "POST", "/v1/links/restore", {"link": "node:n0"}).status == 202
    assert "node:n0 carries" not in front.ask("vera", "GET", "/nodes").text
    assert "overruled by an operator" in front.ask("vera", "GET", "/nodes/n0").text


def test_the_fleet_page_has_the_cost_of_this_month_of_queues_that_its_caller_may_see(
    front: Front,
) -> None:
    assert "at list prices" in front.ask("vera", "GET", "/fleet").text
    assert "at list prices" not in front.ask("nils", "GET", "/fleet").text
