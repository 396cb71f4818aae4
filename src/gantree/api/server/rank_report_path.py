"""`POST /v1/reports`: what ranks in pods report of themselves. It is no part of the API for people and programs.

A token of a pod says whose the report is and lets it do nothing else, so there is no caller, permission or audit. There
are many reports and they are small; FastAPI, which would cost more than the rest, does not see them.
"""

import json
from collections.abc import Callable
from types import SimpleNamespace

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from gantree.api.access.access import Access
from gantree.api.http.connections import STATE
from gantree.api.http.problems import MEDIA_TYPE, problem_of
from gantree.model.errors import GantreeError, TooLarge, Unauthenticated

PATH = "/v1/reports"
MOST_BYTES = 20 * 1024
"""The helper sends 17 KiB at most."""
BEARER = b"bearer "
TakeReport = Callable[[str, bytes], float]
"""Takes a token and a body; returns after how many seconds the rank may report again. Raises GantreeError."""


class RankReportPath:
    """The middleware: it answers requests of its path and passes on the others."""

    def __init__(self, app: ASGIApp, take: TakeReport, access: Access) -> None:
        self._app, self._take, self._access = app, take, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        root = scope.get("root_path", "")
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != root + PATH:
            await self._app(scope, receive, send)
            return
        scope["route"] = SimpleNamespace(path=PATH)
        try:
            again_s = self._taken(scope, await _body_of(receive))
        except GantreeError as error:
            status, problem = problem_of(error)
            await _answer(send, status, problem, MEDIA_TYPE)
        else:
            await _answer(send, 200, {"again_s": again_s}, "application/json")

    def _taken(self, scope: Scope, body: bytes) -> float:
        """Hand a report on. Raises TooOften for strangers beyond their rate, else as take does."""
        connection = scope.get("state", {}).get(STATE)
        try:
            again_s = self._take(_token_of(scope), body)
        except Unauthenticated:
            self._access.rate_limit_anonymous(HTTPConnection(scope))
            raise
        if connection is not None:
            connection.authenticate()
        return again_s


def _token_of(scope: Scope) -> str:
    """The bearer token of a request. Raises Unauthenticated."""
    said: bytes = dict(scope["headers"]).get(b"authorization", b"")
    if not said[: len(BEARER)].lower() == BEARER:
        raise Unauthenticated("a report needs the token of its pod")
    return said[len(BEARER) :].decode("latin-1")


async def _body_of(receive: Receive) -> bytes:
    """The body of a request. Raises TooLarge, without reading the rest."""
    body = b""
    while True:
        message = await receive()
        part: bytes = message.get("body", b"")
        body += part
        if len(body) > MOST_BYTES:
            raise TooLarge(f"body: at most {MOST_BYTES // 1024} KiB are taken in a report")
        if not message.get("more_body", False):
            return body


async def _answer(send: Send, status: int, value: object, media_type: str) -> None:
    """Answer, and end the connection: a report comes every few seconds at most."""
    content = json.dumps(value).encode()
    headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
