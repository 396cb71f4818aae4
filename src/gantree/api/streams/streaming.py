"""Streams (timeline, logs, exec sessions) are authorised again while they are open.

A token can be revoked and a role removed while a stream is open. So every AGAIN_EVERY_S its caller is authenticated
again by the credentials of the request, and its permissions are checked. If that fails the connection is broken off,
without the end of a complete answer.
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
    """The caller lost the right to a stream, or this daemon cannot send the rest of it."""


class StreamAuthorization:
    """The caller of an open stream and the checks that it must pass."""

    def __init__(self, connection: HTTPConnection, caller: Caller) -> None:
        self.caller = caller
        self._connection = connection
        self._checks: list[Callable[[Caller], Awaitable[object]]] = []
        self._again_at = time.monotonic() + AGAIN_EVERY_S

    def add_check(self, check: Callable[[Caller], Awaitable[object]]) -> None:
        """Add a check, which raises a GantreeError where the caller may not go on."""
        self._checks.append(check)

    async def revalidate(self) -> None:
        """Authorise again, if it is due. Raises StreamRevoked."""
        if time.monotonic() < self._again_at:
            return
        try:
            self.caller = await self._known_now()
            for check in self._checks:
                await check(self.caller)
        except GantreeError as error:
            log.info("stream of %s ends: %s", self.caller.name, error)
            raise StreamRevoked(str(error)) from error
        self._again_at = time.monotonic() + AGAIN_EVERY_S

    async def run(self, work: Awaitable[T]) -> T:
        """The result of long work, authorised again meanwhile. Raises StreamRevoked, and cancels it then."""
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
    """The authorisation of this request's stream."""
    return StreamAuthorization(connection, caller)


CurrentStream = Annotated[StreamAuthorization, Depends(stream_authorization_of)]


class AuthorizedStreamingResponse(StreamingResponse):
    """A streaming answer that ends when its caller loses the right to it."""

    def __init__(
        self, parts: AsyncIterator[str | bytes], stream: StreamAuthorization, **more: Any
    ) -> None:
        super().__init__(_while_allowed(parts, stream), **more)

    async def stream_response(self, send: Send) -> None:
        """Send the parts; after StreamRevoked without the end of an answer."""
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
