"""Settings that hold for every test, and a PostgreSQL server that a test run shares."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from gantree.testing.postgres import NoPostgres, Server, SharedServer

settings.register_profile("gantree", deadline=None, print_blob=True)
settings.load_profile("gantree")


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
