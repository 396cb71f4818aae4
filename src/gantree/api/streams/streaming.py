"""Answers that last (the timeline, a job's output as it comes, whoever is attached), and whether they still may.

A token can be revoked and a role taken away while an answer is open. So whoever holds one is asked again who he is, at
most AGAIN_EVERY_S after the last time: by what he showed when he came, by the rules of that moment. Who would not be
let in now is let go: his connection breaks off, so that nobody takes what came for all there is.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection
from starlette.types import Send

from gantree.api.access.access import Access, Caller, WhoAsks, door_of
from gantree.api.access.cookies import cookie_of
from gantree.api.access.permissions import check_need, need_of
from gantree.model.errors import GantreeError

AGAIN_EVERY_S = 5.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class LetGo(Exception):  # no GantreeError: the head of the answer was sent long ago
    """Whoever holds an answer open may not have it any more, or cannot have the rest of it from this daemon."""


class Lasting:
    """Who holds an answer open, as he is known now."""

    def __init__(self, connection: HTTPConnection, caller: Caller) -> None:
        self.caller = caller
        self._connection = connection
        self._checks: list[Callable[[Caller], Awaitable[object]]] = []
        self._again_at = time.monotonic() + AGAIN_EVERY_S

    def only_if(self, check: Callable[[Caller], Awaitable[object]]) -> None:
        """From now on also ask this, which raises a GantreeError where the caller may not."""
        self._checks.append(check)

    async def renew(self) -> None:
        """Ask again, if it is time to. Raises LetGo."""
        if time.monotonic() < self._again_at:
            return
        try:
            self.caller = await self._known_now()
            for check in self._checks:
                await check(self.caller)
        except GantreeError as error:
            log.info("%s is let go: %s", self.caller.name, error)
            raise LetGo(str(error)) from error
        self._again_at = time.monotonic() + AGAIN_EVERY_S

    async def during(self, work: Awaitable[T]) -> T:
        """What comes of something that goes on for long. Raises LetGo, and then it is cancelled."""
        going = asyncio.ensure_future(work)
        try:
            while not going.done():
                await asyncio.wait({going}, timeout=AGAIN_EVERY_S)
                await self.renew()
            return going.result()
        finally:
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)

    async def _known_now(self) -> Caller:
        connection = self._connection
        access: Access = connection.app.state.access
        shown = connection.headers.get("authorization")
        caller = await access.caller(door_of(connection.scope), shown, cookie_of(connection))
        need = need_of(connection)
        if need is not None:
            check_need(caller, need)
        return caller


def lasting_of(connection: HTTPConnection, caller: WhoAsks) -> Lasting:
    """Whoever makes this request."""
    return Lasting(connection, caller)


WhoHolds = Annotated[Lasting, Depends(lasting_of)]


class LastingResponse(StreamingResponse):
    """An answer that comes in parts, for as long as whoever holds it may have it."""

    def __init__(self, parts: AsyncIterator[str | bytes], held_by: Lasting, **more: Any) -> None:
        super().__init__(_while_allowed(parts, held_by), **more)

    async def stream_response(self, send: Send) -> None:
        """Send the parts; where whoever holds it is let go, without an end."""
        try:
            await super().stream_response(send)
        except LetGo:
            return


async def _while_allowed(
    parts: AsyncIterator[str | bytes], held_by: Lasting
) -> AsyncIterator[str | bytes]:
    async for part in parts:
        await held_by.renew()
        yield part
