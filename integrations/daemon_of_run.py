"""pytest plug-in for suites that know nothing of our fixtures: one daemon for the whole run (`-p daemon_of_run`)."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Daemon


@pytest.fixture(scope="session", autouse=True)
def _daemon_of_run() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder) / "daemon")
        daemon.start()
        os.environ["GANTREE_STATE"] = str(daemon.state_dir)
        try:
            yield
        finally:
            daemon.stop()
