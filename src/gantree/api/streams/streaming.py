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

from gantree.api.access.access import Access, Caller, CurrentCaller, transport_of
from gantree.api.access.cookies import cookie_of
from gantree.api.access.permissions import check_need, need_of
from gantree.model.errors import GantreeError

AGAIN_EVERY_S = 5.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class StreamRevoked(Exception):  # no GantreeError: the head of the answer was sent long ago
    """Whoever holds an answer open may not have it any more, or cannot have the rest of it from this daemon."""


class StreamAuthorization:
    """Who holds an answer open, as he is known now."""

    def __init__(self, connection: HTTPConnection, caller: Caller) -> None:
        self.caller = caller
        self._connection = connection
        self._checks: list[Callable[[Caller], Awaitable[object]]] = []
        self._again_at = time.monotonic() + AGAIN_EVERY_S

    def add_check(self, check: Callable[[Caller], Awaitable[object]]) -> None:
        """From now on also ask this, which raises a GantreeError where the caller may not."""
        self._checks.append(check)

    async def revalidate(self) -> None:
        """Ask again, if it is time to. Raises LetGo."""
        if time.monotonic() < self._again_at:
            return
        try:
            self.caller = await self._known_now()
            for check in self._checks:
                await check(self.caller)
        except GantreeError as error:
            log.info("%s is let go: %s", self.caller.name, error)
            raise StreamRevoked(str(error)) from error
        self._again_at = time.monotonic() + AGAIN_EVERY_S

    async def run(self, work: Awaitable[T]) -> T:
        """What comes of something that goes on for long. Raises LetGo, and then it is cancelled."""
        going = asyncio.ensure_future(work)
        try:
            while not going.done():
                await asyncio.wait({going}, timeout=AGAIN_EVERY_S)
                await self.revalidate()
            return going.result()
        finally:
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)

    async def _known_now(self) -> Caller:
        connection = self._connection
        access: Access = connection.app.state.access
        shown = connection.headers.get("authorization")
        caller = await access.caller(transport_of(connection.scope), shown, cookie_of(connection))
        need = need_of(connection)
        if need is not None:
            check_need(caller, need)
        return caller


def stream_authorization_of(
    connection: HTTPConnection, caller: CurrentCaller
) -> StreamAuthorization:
    """Whoever makes this request."""
    return StreamAuthorization(connection, caller)


CurrentStream = Annotated[StreamAuthorization, Depends(stream_authorization_of)]


class AuthorizedStreamingResponse(StreamingResponse):
    """An answer that comes in parts, for as long as whoever holds it may have it."""

    def __init__(
        self, parts: AsyncIterator[str | bytes], stream: StreamAuthorization, **more: Any
    ) -> None:
        super().__init__(_while_allowed(parts, stream), **more)

    async def stream_response(self, send: Send) -> None:
        """Send the parts; where whoever holds it is let go, without an end."""
        try:
            await super().stream_response(send)
        except StreamRevoked:
            return


async def _while_allowed(
    parts: AsyncIterator[str | bytes], stream: StreamAuthorization
) -> AsyncIterator[str | bytes]:
    async for part in parts:
        await stream.revalidate()
        yield part
