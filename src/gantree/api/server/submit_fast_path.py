"""The fast path of `POST /v1/jobs`, which skips FastAPI's routing and dependency solver.

Both run anew for each request and cost twice the rest: authentication, permission, the body, and the route's function.
So the fast path does these itself, by the same functions and in the same order. The route stays FastAPI's: the OpenAPI
describes it, and every unusual request goes its way: another content type, a repeated header, a body that is no
submission. Errors in a request are reported there alone.
"""

from collections.abc import Iterable, Sequence

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantree.api.access.access import caller_of
from gantree.api.access.permissions import permitted
from gantree.api.server.error_handlers import problem_answer
from gantree.model.errors import GantreeError

KEY = b"idempotency-key"
JSON = b"application/json"


def route_in(routers: Iterable[APIRouter], method: str, path: str) -> APIRoute:
    """The route of a method and a path."""
    routes = (route for router in routers for route in router.routes)
    found = (route for route in routes if isinstance(route, APIRoute) and route.path == path)
    return next(route for route in found if method in (route.methods or ()))


class SubmitFastPath:
    """The middleware next to the application.

    route is asked by POST and takes what submitting a job does: a body of this model, a caller, a request, a key.
    """

    def __init__(self, app: ASGIApp, route: APIRoute, model: type[BaseModel]) -> None:
        self._app, self._route, self._model = app, route, model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if not self._is_asked(scope):
            await self._app(scope, receive, send)
            return
        came, content = await _received(receive)
        response = await self._answer(scope, content)
        if response is None:
            await self._app(scope, _again(came, receive), send)
            return
        await response(scope, receive, send)

    def _is_asked(self, scope: Scope) -> bool:
        """Whether this is a request of the route, as nearly all come."""
        path = self._route.path
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(path):
            return False
        headers = dict(scope["headers"])
        is_plain = headers.get(b"content-type") == JSON and len(headers) == len(scope["headers"])
        root = scope.get("root_path", "")
        return is_plain and scope["path"] == (path if root == "" else root + path)

    async def _answer(self, scope: Scope, content: bytes | None) -> Response | None:
        """The route's answer; None for a body that it does not accept."""
        try:
            parsed = None if content is None else from_json(content)
        except ValueError:
            parsed = None
        if parsed is None:
            return None
        scope["route"] = self._route
        request = Request(scope)
        try:
            caller = await caller_of(request)
            await permitted(request, caller)
            body = self._model.model_validate(parsed)
            key = dict(scope["headers"]).get(KEY)
            said = None if key is None else key.decode("latin-1")
            response: Response = await self._route.endpoint(body, caller, request, said)
        except ValidationError:
            return None
        except GantreeError as error:
            return problem_answer(request, error)
        return response


async def _received(receive: Receive) -> tuple[Sequence[Message], bytes | None]:
    """The messages of a request, and its body; None for one that was broken off."""
    came: list[Message] = []
    while not came or came[-1].get("more_body", False):
        came.append(await receive())
    if came[-1]["type"] != "http.request":
        return came, None
    return came, b"".join(each.get("body", b"") for each in came)


def _again(came: Sequence[Message], receive: Receive) -> Receive:
    """A receive that repeats the messages that came, then goes on."""
    left = list(reversed(came))

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
