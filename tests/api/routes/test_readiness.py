"""`/readyz` of one that led: a proxy that goes by it must send it nothing more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.policy.rules import Policy
from gantree.testing.builders import cluster
from support.front import Front


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    with Front(tmp_path, "users: {}", cluster(), Policy()) as front:
        yield front


def test_who_leads_is_ready(front: Front) -> None:
    told = front.ask("", "GET", "/readyz")
    assert (told.status, told.json["role"]) == (200, "leader")


@pytest.mark.parametrize("is_resigned", [True, False])
def test_once_another_epoch_has_begun_nobody_is_sent_here(
    front: Front, *, is_resigned: bool
) -> None:
    journal = front.controller.journal
    was = front.controller.epoch
    assert front.ask("", "GET", "/readyz").status == 200
    journal.resign(was)
    assert journal.lead("another at http://b:1", 60.0) == was + 1
    if is_resigned:
        journal.resign(was + 1)
    told = front.ask("", "GET", "/readyz")
    assert (told.status, told.json["title"]) == (503, "NotLeading")
    assert told.json["leader"] == (None if is_resigned else "another at http://b:1")
