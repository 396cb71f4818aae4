"""A submission by the short way is answered, noted and counted as by FastAPI's, whatever is right or wrong with it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import routing

from gantree.api.access.rate_limits import RateLimits
from gantree.api.http.security_middleware import MOST_BYTES
from gantree.api.server.app import build_app
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster
from support.front import Front, Told

ACCESS = """
users:
  alice: {grants: {role: user, queue: research}}
  vera: {grants: {role: viewer, queue: research}}
  nils: {}
"""
URL = "/v1/jobs"
LONG = {"content-type": "application/json; charset=utf-8"}
"""What only FastAPI takes for JSON."""


def job(**fields: Any) -> dict[str, Any]:
    role = {"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["true"]}
    return {"name": "new", "queue": "research", "gang": [role], "workdir": "/"} | fields


JOB = job()
del JOB["workdir"]
BODY = {"jobs": [JOB], "base_dir": "/tmp"}
KEY = {"idempotency-key": "mine"}


class Case(NamedTuple):
    says: str
    body: object
    status: int = 201
    user: str = "alice"
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


CASES = (
    Case("a job", BODY),
    Case("several jobs", {"jobs": [JOB, {**JOB, "name": "other"}], "base_dir": "/"}),
    Case("a job file", {"text": json.dumps(JOB), "base_dir": "/"}),
    Case("more than is read at once", {**BODY, "source": "s" * 4000, "base_dir": "/" + "d" * 4090, "login": "l" * 200}),
    Case("with a key", BODY, 201, headers=KEY),
    Case("again with the key", BODY, 201, headers=KEY),
    Case("another with the key", {**BODY, "base_dir": "/"}, 409, headers=KEY),
    Case("with no key at all", BODY, 422, headers={"idempotency-key": ""}),
    Case("with a key of odd characters", BODY, 422, headers={"idempotency-key": "\xe9"}),
    Case("for another queue", {"jobs": [{**JOB, "queue": "vision"}], "base_dir": "/"}, 403),
    Case("by a stranger", BODY, 401, ""),
    Case("by somebody without a role", BODY, 403, "nils"),
    Case("by a viewer", BODY, 403, "vera"),
    Case("nothing", b"", 422),
    Case("no JSON, by a stranger", b"{", 422, ""),
    Case("no JSON", b'{"jobs": [', 422),
    Case("no text", b'{"text": "\xff"}', 400),
    Case("a lone surrogate", b'{"text": "\\ud800"}', 422),
    Case("what begins with a mark of its order of bytes", b"\xef\xbb\xbf" + json.dumps(BODY).encode()),
    Case("no number", b'{"jobs": [NaN]}', 422),
    Case("null", b"null", 422),
    Case("a list", [BODY], 422),
    Case("nested deeply", b"[" * 5000 + b"]" * 5000, 400),
    Case("an unknown field", {**BODY, "more": 1}, 422),
    Case("an unknown field, by a stranger", {**BODY, "more": 1}, 401, ""),
    Case("an unknown field, by a viewer", {**BODY, "more": 1}, 403, "vera"),
    Case("neither text nor jobs", {}, 422),
    Case("too many fields", {"overrides": {str(n): n for n in range(1001)}}, 422),
    Case("no job", {"jobs": [{"name": "new"}], "base_dir": "/"}, 422),
    Case("a job without a place to start", {"jobs": [job(gang=[{**JOB["gang"][0], "workdir": "x"}])]}, 422),
    Case("after nobody", {"jobs": [{**JOB, "after": ["nobody"]}], "base_dir": "/"}, 422),
    Case("too much", b" " * (MOST_BYTES + 1), 413),
    Case("more than it says", b" " * (MOST_BYTES + 1), 413, headers={"content-length": "0"}),
)  # fmt: skip


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Front]]:
    """One that is asked by the short way, one by the long."""
    places: list[Path] = [tmp_path_factory.mktemp(name) for name in ("short", "long")]
    policy = Policy()
    with (
        Front(places[0], ACCESS, cluster(), policy) as short,
        Front(places[1], ACCESS, cluster(), policy) as long,
    ):
        yield short, long


def ask(front: Front, case: Case, headers: dict[str, str]) -> Told:
    return front.ask(case.user, "POST", URL, case.body, headers=case.headers | headers)


def noted(front: Front) -> tuple[object, ...]:
    """The newest row of the audit log, and how often the route answered with which status."""
    (row,) = front.ask("daemon", "GET", "/v1/audit?limit=1000").json["rows"][-1:]
    counted = front.controller.metrics.http_requests.collect()
    told = [
        (sample.labels["status"], sample.value)
        for metric in counted
        for sample in metric.samples
        if sample.labels["route"] == f"POST {URL}" and sample.name.endswith("_total")
    ]
    kept = {name: value for name, value in row.items() if name not in ("at", "request_id", "seq")}
    kept["door"] = str(kept["door"]).split()[:2]
    return kept, told


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_both_ways_come_to_the_same(fronts: tuple[Front, Front], case: Case) -> None:
    short, long = fronts
    by_short, by_long = ask(short, case, {}), ask(long, case, LONG)
    assert by_short.status == case.status, by_short.text
    assert by_short.json == by_long.json
    unlike = {"x-request-id"}
    assert {name: value for name, value in by_short.headers.items() if name not in unlike} == {
        name: value for name, value in by_long.headers.items() if name not in unlike
    }
    assert noted(short) == noted(long)


def test_a_usual_submission_is_not_solved_by_fastapi(
    fronts: tuple[Front, Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def solved(**_: object) -> None:
        raise AssertionError("the long way")

    monkeypatch.setattr(routing, "solve_dependencies", solved)
    usual, unusual = Case("a job", BODY), Case("no job", {})
    assert ask(fronts[0], usual, {}).status == 201
    assert "the long way" in ask(fronts[0], unusual, {}).text


def test_a_submission_that_goes_both_ways_counts_as_one_request(
    fronts: tuple[Front, Front],
) -> None:
    state = fronts[0].app.state
    access = state.access
    state.access = replace(access, rates=RateLimits(1e-9, 3))
    try:
        told = [ask(fronts[0], Case("no job", {}), {}).status for _ in range(4)]
    finally:
        state.access = access
    assert told == [422, 422, 422, 429]


def test_behind_a_prefix_it_is_the_same(tmp_path: Path) -> None:
    with Front(tmp_path, ACCESS, cluster(), Policy()) as front:
        app = build_app(front.backend, front.app.state.access, root_path="/gantree")
        front.app = app
        told = [
            front.ask("alice", "POST", f"{prefix}{URL}", BODY).status
            for prefix in ("", "/gantree", "/other", "/gantree/gantree")
        ]
    assert told == [201, 201, 404, 404]
