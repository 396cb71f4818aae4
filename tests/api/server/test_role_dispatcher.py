"""Requests when a daemon stops leading: what has begun goes on, what has not is answered by an error or the standby."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gantree.api.server.standby.role_dispatcher import RoleDispatcher
from gantree.control.engine.leadership import Term

HTTP: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def stands_by(scope: Scope, receive: Receive, send: Send) -> None:
    await send({**START, "status": 421})


async def answer_of(dispatcher: RoleDispatcher, scope: Scope, sent: list[Message]) -> None:
    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    await dispatcher(scope, receive, send)


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_who_waits_for_an_answer_is_told_when_the_term_is_over(kind: str) -> None:
    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def life() -> list[Message]:
        dispatcher, sent = RoleDispatcher(lambda: stands_by), list[Message]()
        dispatcher.lead(Term(1), hang)
        request = asyncio.create_task(answer_of(dispatcher, {**HTTP, "type": kind}, sent))
        await asyncio.sleep(0)
        dispatcher.stand_by()
        await request
        await answer_of(dispatcher, HTTP, sent)
        return sent

    first, *_, last = asyncio.run(life())
    assert (first.get("status"), first["type"]) == (
        (503, "http.response.start") if kind == "http" else (None, "websocket.close")
    )
    assert last["status"] == 421


def test_an_answer_that_has_begun_goes_on() -> None:
    goes_on = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await goes_on.wait()
        await send({"type": "http.response.body", "body": b"the end"})

    async def life() -> list[Message]:
        dispatcher, sent = RoleDispatcher(lambda: stands_by), list[Message]()
        dispatcher.lead(Term(1), stream)
        request = asyncio.create_task(answer_of(dispatcher, HTTP, sent))
        await asyncio.sleep(0)
        dispatcher.stand_by()
        goes_on.set()
        await request
        return sent

    assert [message.get("body") for message in asyncio.run(life())] == [None, b"the end"]


def test_a_request_that_is_cancelled_while_the_daemon_leads_stays_cancelled() -> None:
    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def life() -> list[Any]:
        dispatcher, sent = RoleDispatcher(lambda: stands_by), list[Message]()
        dispatcher.lead(Term(1), hang)
        request = asyncio.create_task(answer_of(dispatcher, HTTP, sent))
        await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait({request})
        return [request.cancelled(), sent]

    assert asyncio.run(life()) == [True, []]
