"""A PostgreSQL server that the test run shares, and an empty database of it for each test."""

import os
from collections.abc import Iterator

import pytest

from gantree.testing.postgres import NoPostgres, Server, SharedServer


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server. Without one tests are skipped, and with CI=true they fail."""
    base = tmp_path_factory.getbasetemp()
    try:
        shared = SharedServer(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
    except NoPostgres as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    yield shared.server
    shared.leave()


@pytest.fixture
def database_url(postgres: Server) -> Iterator[str]:
    """An empty database."""
    with postgres.database() as url:
        yield url
