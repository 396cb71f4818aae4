"""Middleware in front of the application: a request id, a limit on the request's size, security headers.

Plain ASGI, so that streams are not held back. A body is counted as it comes: one that is too large is refused at once,
and its rest is never read.
"""

import json
import re
import secrets
from itertools import count
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantree.api.http.problems import MEDIA_TYPE, problem_of
from gantree.model.errors import GantreeError, TooLarge

MOST_BYTES = 4 * 1024 * 1024
REQUEST_ID = b"x-request-id"
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Sent with every answer that does not set them itself."""
_STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")


class SecurityMiddleware:
    """The middleware."""

    def __init__(self, app: ASGIApp, most_bytes: int = MOST_BYTES) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._numbers = count(secrets.randbits(63))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on what is none."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = self._id_of(headers)
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        if scope["type"] == "websocket":  # the server limits its messages
            await self._app(scope, receive, _with_headers(send, request_id, scope))
            return
        passage = _LimitedExchange(
            receive, _with_headers(send, request_id, scope), self._most_bytes
        )
        if _stated_bytes(headers) > self._most_bytes:
            await passage.refuse()
            return
        try:
            await self._app(scope, passage.receive, passage.send)
        except Exception:
            if not passage.too_large:
                raise
        if passage.too_large:
            await passage.refuse()

    def _id_of(self, headers: dict[bytes, Any]) -> bytes:
        """The caller's own id of its request, where it can stand in a log as it is; else the next number.

        That is no secret: to ask the system for a random one lets go of the interpreter, and a busy thread keeps it.
        """
        given: bytes = headers.get(REQUEST_ID, b"")
        return given if _GIVEN_ID.fullmatch(given) else b"%016x" % next(self._numbers)


class _LimitedExchange:
    """One request through the guard."""

    def __init__(self, receive: Receive, send: Send, most_bytes: int) -> None:
        self._receive, self._send, self._most_bytes = receive, send, most_bytes
        self._came = 0
        self._started = False
        self.too_large = False

    async def receive(self) -> Message:
        """The next part of the body; the end of the connection where there is too much of it."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._came += len(message.get("body", b""))
            if self._came > self._most_bytes and not self._started:
                self.too_large = True
                return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer, unless another takes its place."""
        if not self.too_large:
            self._started = True
            await self._send(message)

    async def refuse(self) -> None:
        """Say that the body is too large, and that nothing more of it is read."""
        allowed = f"at most {self._most_bytes // 1024} KiB are taken in one request"
        await send_problem(self._send, TooLarge(f"body: {allowed}; hand in less at a time"))


async def send_problem(send: Send, error: GantreeError) -> None:
    """An answer that is an error, and the end of the connection."""
    status, body = problem_of(error)
    content = json.dumps(body).encode()
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _with_headers(send: Send, request_id: bytes, scope: Scope) -> Send:
    always: list[tuple[bytes, bytes]] = [*_HEADERS, (REQUEST_ID, request_id)]
    if scope.get("scheme") in ("https", "wss"):
        always.append(_STRICT_TRANSPORT)

    async def sent(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            said = {name.lower() for name, _ in message.get("headers", ())}
            more = [each for each in always if each[0] not in said]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sent


def _stated_bytes(headers: dict[bytes, Any]) -> int:
    stated: bytes = headers.get(b"content-length", b"0")
    return int(stated) if stated.isdigit() and len(stated) < 19 else 0
