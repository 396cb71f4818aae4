"""Error handlers: every error becomes application/problem+json."""

from collections.abc import Mapping
from reprlib import Repr
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from gantree.api.access.audit import note_hidden
from gantree.api.access.permissions import HiddenJob
from gantree.api.http.problems import MEDIA_TYPE, problem_of
from gantree.api.observability.request_telemetry import METHODS
from gantree.model.errors import (
    BadFields,
    GantreeError,
    NotLeading,
    Problem,
    TooOften,
    Unauthenticated,
)
from gantree.text.words import shortened

UNREADABLE = "the body cannot be read; allowed: JSON in UTF-8, not nested deeply"
LONGEST_FOUND = 100
_SHOWN = Repr()
"""Shows the start of a value, without writing out all of one that is large."""
_SHOWN.maxstring = _SHOWN.maxlong = _SHOWN.maxother = LONGEST_FOUND
MOST_PROBLEMS = 100
"""The number of problems that are reported for one request."""
_MORE_HEADERS: dict[type[GantreeError], dict[str, str]] = {
    Unauthenticated: {"WWW-Authenticate": "Bearer"},
    TooOften: {"Retry-After": "1"},
    NotLeading: {"Retry-After": "1"},
}


def add_error_handlers(app: FastAPI) -> None:
    """Add the handlers."""

    @app.exception_handler(GantreeError)
    async def gantree_error(request: Request, error: GantreeError) -> JSONResponse:
        return problem_answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def bad_request(request: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()
        if any(each["loc"] == ("body",) for each in found) and _is_other_media(request):
            kind = request.headers.get("content-type", "nothing")[:100]
            detail = f"Content-Type: found {kind!r}; allowed: application/json"
            return _problem(415, {"title": "Unsupported", "status": 415, "detail": detail})
        problems = [_problem_of_request(each) for each in found[:MOST_PROBLEMS]]
        return problem_answer(request, BadFields(problems))

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        status, headers = error.status_code, error.headers
        detail = UNREADABLE if status == 400 else error.detail
        if status == 405:
            allowed = ", ".join(_methods_of_path(request))
            headers = {"Allow": allowed}
            detail = f"{request.method} is not for {request.url.path}; allowed: {allowed}"
        body = {"title": error.detail, "status": status, "detail": detail}
        return _problem(status, body, headers)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        detail = f"bug in the daemon ({type(error).__name__}: {error}); its log has more"
        return _problem(500, {"title": "InternalError", "status": 500, "detail": detail})


def _methods_of_path(request: Request) -> list[str]:
    """The methods of all routes of a path; the router names those of the first one alone."""
    routes = request.app.router.routes
    scopes = {method: {**request.scope, "method": method} for method in sorted(METHODS)}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    ]


def problem_answer(request: Request, error: GantreeError) -> JSONResponse:
    """The answer to a request that came to an error."""
    if isinstance(error, HiddenJob):
        note_hidden(request.scope)
    status, body = problem_of(error)
    return _problem(status, body, _MORE_HEADERS.get(type(error)))


def _problem(
    status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(body, status, dict(headers or {}), media_type=MEDIA_TYPE)


def _is_other_media(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    length = request.headers.get("content-length", "0")
    has_body = length != "0" or "transfer-encoding" in request.headers
    return has_body and kind != "application/json" and not kind.endswith("+json")


def _problem_of_request(error: Mapping[str, Any]) -> Problem:
    if error["type"] == "json_invalid":
        reason = str(error.get("ctx", {}).get("error", "it ends too early"))
        return Problem("request", None, "body", f"no JSON ({reason})", "JSON in UTF-8")
    field = ".".join(str(part)[:200] for part in error["loc"][1:]) or str(error["loc"][0])
    found = _SHOWN.repr(error.get("input"))[:LONGEST_FOUND]
    said = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    allowed = said[:1000]
    return Problem("request", None, shortened(field, 200), found, allowed)
