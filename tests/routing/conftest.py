"""Replicas that tests of routing share."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.replica import ReplicaProcess


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ReplicaProcess]]:
    """Three that no test kills."""
    directory = tmp_path_factory.mktemp("replicas")
    with ExitStack() as opened:
        yield [
            opened.enter_context(ReplicaProcess(f"chat.{number}", directory))
            for number in (1, 2, 3)
        ]
