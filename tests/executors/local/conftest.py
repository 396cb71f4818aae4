"""Every test here runs real processes, and none may leave one behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.gangs import GangStage, four_nodes, left_over


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GangStage]:
    stage = GangStage(tmp_path / "state", four_nodes())
    yield stage
    stage.end_all()
    assert left_over(tmp_path) == []
