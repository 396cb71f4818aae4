"""Tests that state what a server does run against ours, and against a real one where KUBEBUILDER_ASSETS names it.

Those of knobs, and of what only ours has, use ours alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from support.kubernetes.real import is_asked_for, real_server
from support.kubernetes.server.thread import Api, ServerThread, Site
from support.kubernetes.shared import or_skipped

_spaces = count(1)


@pytest.fixture(scope="session")
def real_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A real server, for all tests of this process."""
    with or_skipped(), real_server(tmp_path_factory.mktemp("kubernetes")) as (url, token):
        yield Site(url, Api(url, token))


@pytest.fixture(scope="module", params=["ours", "real"] if is_asked_for() else ["ours"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A server: what is said of it holds for any."""
    if request.param == "real":
        yield request.getfixturevalue("real_site")
        return
    with our_site() as site:
        yield site


@contextmanager
def our_site() -> Iterator[Site]:
    with ServerThread() as running, Api(running.url) as api:
        yield Site(running.url, api)


@pytest.fixture
def api(site: Site) -> Api:
    return site.api


@pytest.fixture
def space(api: Api) -> str:
    """A namespace of the test's own."""
    name = f"space-{next(_spaces)}"
    assert api.post("/api/v1/namespaces", {"metadata": {"name": name}}).status_code == 201
    return name


@pytest.fixture
def running() -> Iterator[ServerThread]:
    """A server of ours for one test, with all its knobs."""
    with ServerThread() as running:
        yield running


@pytest.fixture
def ours(running: ServerThread) -> Iterator[Api]:
    with Api(running.url) as api:
        yield api
