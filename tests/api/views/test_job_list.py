"""Lists of jobs that are too long for one piece: they come page by page, and are the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from gantree.api.routes import jobs
from gantree.api.views import queries
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster
from support.front import Front

JOBS = 7


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    place = tmp_path_factory.mktemp("list")
    with Front(place, "users: {al: {grants: {role: user}}}", cluster(), Policy()) as front:
        for number in range(JOBS):
            who = "al" if number % 3 == 0 else "daemon"
            gang = [{"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["true"]}]
            body = {"jobs": [{"name": f"j{number}", "hold": True, "gang": gang}]}
            assert front.ask(who, "POST", "/v1/jobs", body).status == 201
        yield front


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were read at a time."""
    read: list[int] = []
    whole = queries.jobs

    def noted(*asked: Any) -> Any:
        found = whole(*asked)
        read.append(len(found["jobs"]))
        return found

    monkeypatch.setattr(queries, "jobs", noted)
    return read


@pytest.mark.parametrize("at_once", [1, 2, 3, JOBS - 1, JOBS, JOBS + 1])
@pytest.mark.parametrize("query", ["", "?name=j3", "?name=none", "?after=3"])
@pytest.mark.parametrize("who", ["daemon", "al"])
def test_a_list_without_a_limit_is_read_in_pieces_and_is_the_whole_list(
    front: Front,
    pages: list[int],
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    query: str,
    who: str,
) -> None:
    monkeypatch.setattr(jobs, "ROWS_AT_ONCE", 1000)
    whole = front.ask(who, "GET", f"/v1/jobs{query}").json
    monkeypatch.setattr(jobs, "ROWS_AT_ONCE", at_once)
    del pages[:]
    told = front.ask(who, "GET", f"/v1/jobs{query}")
    assert (told.json, told.headers["content-type"]) == (whole, "application/json")
    assert max(pages) <= at_once
    assert sum(pages) == len(whole["jobs"])


def test_what_is_wrong_with_a_list_is_told_before_it_begins(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ROWS_AT_ONCE", 1)
    assert front.ask("daemon", "GET", "/v1/jobs?after=x").status == 422
