"""`POST /v1/reports` and `/v1/checks`: what ranks in pods report of themselves, and what pods find in their check.

They are no part of the API for people and programs. A token of a pod says whose a post is and lets it do nothing else,
so there is no caller, permission or audit. There are many posts and they are small; FastAPI, which would cost more than
the rest, does not see them.
"""

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from gantree.api.access.access import Access
from gantree.api.http.connections import STATE
from gantree.api.http.problems import MEDIA_TYPE, problem_of
from gantree.model.errors import GantreeError, TooLarge, Unauthenticated

REPORTS, CHECKS = "/v1/reports", "/v1/checks"
MOST_BYTES = 20 * 1024
"""The helper sends 17 KiB at most, a pod with 16 GPUs 14 KiB of its check."""
BEARER = b"bearer "
TakePost = Callable[[str, bytes], Mapping[str, Any]]
"""Takes a token and a body; returns the answer, as JSON. Raises GantreeError."""


class PodPaths:
    """The middleware: it answers requests of its paths and passes on the others."""

    def __init__(self, app: ASGIApp, takes: Mapping[str, TakePost], access: Access) -> None:
        """takes are by path."""
        self._app, self._takes, self._access = app, takes, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        path = _path_of(scope)
        if path not in self._takes:
            await self._app(scope, receive, send)
            return
        scope["route"] = SimpleNamespace(path=path)
        try:
            answer = self._taken(self._takes[path], scope, await _body_of(receive))
        except GantreeError as error:
            status, problem = problem_of(error)
            await _answer(send, status, problem, MEDIA_TYPE)
        else:
            await _answer(send, 200, answer, "application/json")

    def _taken(self, take: TakePost, scope: Scope, body: bytes) -> Mapping[str, Any]:
        """Hand a post on. Raises TooOften for strangers beyond their rate, else as take does."""
        connection = scope.get("state", {}).get(STATE)
        try:
            answer = take(_token_of(scope), body)
        except Unauthenticated:
            self._access.rate_limit_anonymous(HTTPConnection(scope))
            raise
        if connection is not None:
            connection.authenticate()
        return answer


def _path_of(scope: Scope) -> str:
    """The path of a POST below the prefix of a proxy; "" for other requests."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return ""
    root, path = scope.get("root_path", ""), str(scope["path"])
    return path.removeprefix(root) if path.startswith(root) else ""


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
            raise TooLarge(f"body: at most {MOST_BYTES // 1024} KiB are taken of a pod")
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
