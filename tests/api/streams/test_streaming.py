"""Answers that last: whoever may not have one any more is let go, and nobody else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from gantree.api.access.access import Transport
from gantree.api.routes import site
from gantree.api.streams import event_feed, streaming
from gantree.api.streams.streaming import StreamAuthorization, StreamRevoked
from gantree.control.engine.controller import Controller
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.web.pages import routers
from gantree.web.pages.heat_map import feed as heat_feed
from support.front import Front

ACCESS = """
users:
  alice: {grants: {role: user, queue: research}}
  quinn: {grants: {role: queue_admin, queue: research}}
"""
ELSEWHERE = ACCESS.replace("queue_admin, queue: research", "queue_admin, queue: vision")
NOWHERE = ACCESS.replace("{grants: {role: queue_admin, queue: research}}", "{}")
LOGS = "/v1/jobs/hers/logs?follow=true"
LASTING = ("/v1/events", "/v1/events?job=hers", "/v1/facts?follow=true", LOGS, "/cluster/stream")
Change = Callable[[Front, str], Awaitable[object]]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    place, policy = tmp_path_factory.mktemp("front"), Policy()
    with Front(place, ACCESS, cluster(leaves=1, nodes=1), policy, routers()) as front:
        front.on_thread(lambda controller: hand_in(controller, "hers"))
        yield front


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (streaming, site):
        monkeypatch.setattr(module, "AGAIN_EVERY_S", 0.05)
    for feed in (event_feed, heat_feed):
        monkeypatch.setattr(feed, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(heat_feed, "EVERY_S", 0.05)


def hand_in(controller: Controller, name: str) -> object:
    return controller.submit([replace(job(name), queue="research", user="alice")], "/", {})


async def revoked(front: Front, secret: str) -> None:
    row = await front.tokens.find(secret)
    assert row is not None
    await front.tokens.revoke(row.id)


async def taken_away(front: Front, secret: str) -> None:
    rule(front, NOWHERE)


async def moved_elsewhere(front: Front, secret: str) -> None:
    rule(front, ELSEWHERE)


async def nothing(front: Front, secret: str) -> None:
    pass


def rule(front: Front, text: str) -> None:
    front.access_file.write_text(text)
    front.file.reload()


def held(
    front: Front, user: str, url: str, change: Change, wait_s: float = 300.0
) -> tuple[bool, list[Any]]:
    """Hold an answer open, and change something when its head has come. Whether it is over in time, and what came."""
    secret, came = front.token(user), list[Any]()

    async def scene() -> bool:
        begun = asyncio.Event()

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            came.append(message)
            begun.set()

        path, _, query = url.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "root_path": "", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("g", 80),
            "headers": [(b"host", b"g"), (b"authorization", f"Bearer {secret}".encode())],
            "state": {"transport": Transport("tcp")},
        }  # fmt: skip
        going = asyncio.create_task(front.app(scope, receive, send))
        await begun.wait()
        await change(front, secret)
        done, _ = await asyncio.wait({going}, timeout=wait_s)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        return bool(done)

    return front._runner.run(scene()), came


@pytest.mark.parametrize("url", LASTING)
@pytest.mark.parametrize("change", [revoked, taken_away])
def test_who_would_not_be_let_in_now_is_let_go_and_his_answer_has_no_end(
    front: Front, url: str, change: Change
) -> None:
    is_over, came = held(front, "quinn", url, change)
    rule(front, ACCESS)
    assert came[0]["status"] == 200
    assert is_over
    assert all(message.get("more_body") for message in came[1:]), "it looks complete"


def test_who_may_read_a_job_no_more_is_told_nothing_more_of_it(front: Front) -> None:
    async def elsewhere(front: Front, secret: str) -> None:
        await moved_elsewhere(front, secret)
        await asyncio.sleep(0.3)
        await front.loop.call(lambda: hand_in(front.controller, "another"))
        await front.loop.advance(front.controller)

    is_over, came = held(front, "quinn", "/v1/events", elsewhere, wait_s=0.5)
    rule(front, ACCESS)
    assert not is_over
    assert b"another" not in b"".join(message.get("body", b"") for message in came)
    assert held(front, "quinn", "/v1/events?job=hers", moved_elsewhere)[0]
    rule(front, ACCESS)


@pytest.mark.parametrize("url", LASTING)
def test_who_may_still_have_it_keeps_it(front: Front, url: str) -> None:
    is_over, came = held(front, "alice", url, nothing, wait_s=0.3)
    assert (came[0]["status"], is_over) == (200, False)


def test_work_for_somebody_who_is_let_go_is_cancelled_with_him(front: Front) -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def scene(secret: str) -> None:
        shown = [(b"authorization", f"Bearer {secret}".encode())]
        scope = {"type": "http", "path": "/", "headers": shown, "app": front.app}
        held_by = StreamAuthorization(
            HTTPConnection(scope), await front.app.state.access.of_token(secret)
        )
        await revoked(front, secret)
        with pytest.raises(StreamRevoked, match="revoked"):
            await held_by.run(forever())

    front._runner.run(scene(front.token("quinn")))
    assert ended == ["cancelled"]
