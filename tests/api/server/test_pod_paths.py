"""The paths of pods beside the application: what is answered there, what is passed on, and how much is read."""

import asyncio
import json
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from gantree.api.access.access import Access
from gantree.api.access.rate_limits import RateLimits
from gantree.api.http.connections import STATE, ConnectionLimits, Connections
from gantree.api.server.pod_paths import CHECKS, MOST_BYTES, REPORTS, PodPaths
from gantree.model.errors import NotLeading, Unauthenticated

Take = Callable[[str, bytes], dict[str, Any]]


async def passed_on(scope: Any, receive: Any, send: Any) -> None:
    """The application behind it."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def taken(token: str, body: bytes) -> dict[str, Any]:
    if token != "good":
        raise Unauthenticated("the token is that of no running pod")
    return {"bytes": len(body)}


def stands_by(token: str, body: bytes) -> dict[str, Any]:
    raise NotLeading("b stands by: a leads at https://a", "a", "https://a")


def asked(
    *parts: bytes, take: Take = taken, access: Access | None = None, **scope: Any
) -> tuple[int, Any, int]:
    """Status and body of the answer, and how many parts of the request were read."""
    left, sent = list(parts), list[MutableMapping[str, Any]]()

    async def receive() -> dict[str, Any]:
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    told: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/reports",
        "headers": [(b"authorization", b"Bearer good")],
        "client": ("10.0.0.1", 1),
        **scope,
    }
    path = PodPaths(passed_on, {REPORTS: take, CHECKS: take}, access or Access())
    asyncio.run(path(told, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"]), len(parts) - len(left)


def test_a_report_in_parts_is_taken_as_a_whole() -> None:
    assert asked(b"ab", b"c") == (200, {"bytes": 3}, 2)
    assert asked(b"ab", path="/v1/checks") == (200, {"bytes": 2}, 1)


def test_of_a_megabyte_no_more_is_read_than_a_report_has() -> None:
    status, body, read = asked(*[b" " * 1024] * 1024)
    assert (status, body["title"]) == (413, "TooLarge")
    assert read == MOST_BYTES // 1024 + 1


@pytest.mark.parametrize(
    "headers", [[], [(b"authorization", b"Basic good")], [(b"authorization", b"Bearer bad")]]
)
def test_without_the_token_of_a_pod_it_is_refused_and_counts_as_a_strangers(headers: Any) -> None:
    access = Access(rates=RateLimits(0.001, 1, clock=lambda: 0.0))
    assert asked(b"{}", access=access, headers=headers)[0] == 401
    assert asked(b"{}", access=access, headers=headers)[0] == 429
    assert asked(b"{}", access=access)[0] == 200


def test_its_connection_is_no_strangers_once_a_report_was_taken() -> None:
    connection = Connections(ConnectionLimits(4, 4)).admit("10.0.0.1")
    assert connection is not None
    bad = [(b"authorization", b"Bearer bad")]
    asked(b"{}", state={STATE: connection}, headers=bad)
    assert connection.is_stranger
    asked(b"{}", state={STATE: connection})
    assert not connection.is_stranger


def test_a_standby_refuses_it_and_names_the_leader() -> None:
    status, body, _ = asked(b"{}", take=stands_by)
    assert (status, body["leader_url"]) == (503, "https://a")


@pytest.mark.parametrize(
    "scope",
    [
        {"method": "GET"},
        {"path": "/v1/reports/1"},
        {"path": "/v1/jobs"},
        {"type": "websocket"},
        {"root_path": "/gantree"},
    ],
)
def test_all_else_is_passed_on(scope: dict[str, Any]) -> None:
    assert asked(b"", **scope)[0] == 299


def test_it_is_below_the_prefix_of_a_proxy() -> None:
    found = asked(b"", root_path="/gantree", path="/gantree/v1/reports")
    assert found == (200, {"bytes": 0}, 1)
