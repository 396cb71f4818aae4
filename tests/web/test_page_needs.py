"""Who may open which page: whoever the API would answer with the same, and nobody else."""

from collections.abc import Iterator

import pytest

from gantree.api.permissions import KEY
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.front import Front
from gantree.web.pages import assets, login, routers

ACCESS = """
users:
  vera: {grants: {role: viewer}}
  uma: {grants: {role: user, queue: default}}
  nils: {}
"""
PAGES = (
    "/",
    "/queue",
    "/queues",
    "/cluster",
    "/gantt",
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


def test_every_page_says_what_it_needs(front: Front) -> None:
    made = [router for router in routers() if router not in PUBLIC]
    opened = [route for router in made for route in router(front.backend).routes]
    assert len(opened) > len(PAGES)
    assert [
        route for route in opened if KEY not in (getattr(route, "openapi_extra", None) or {})
    ] == []
