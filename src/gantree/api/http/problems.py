"""Errors on the wire: application/problem+json (RFC 9457), with enough data to raise the same error again.

Standard library only: server and client both import it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gantree.model.errors import (
    BadFields,
    BadInput,
    Conflict,
    EventIdReused,
    Forbidden,
    GantreeError,
    JournalError,
    NotFound,
    NotLeading,
    Problem,
    Stale,
    TooLarge,
    TooLong,
    TooOften,
    Unauthenticated,
    Unreachable,
    Unsupported,
)

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[GantreeError], int] = {
    BadFields: 422,
    BadInput: 422,
    Unsupported: 422,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    EventIdReused: 409,
    Stale: 412,
    TooLarge: 413,
    TooOften: 429,
    Unreachable: 503,
    TooLong: 504,
    JournalError: 503,
    NotLeading: 503,
    GantreeError: 500,
}
"""HTTP status of each error."""

_KIND_OF_NAME = {kind.__name__: kind for kind in STATUS}


def problem_of(error: GantreeError) -> tuple[int, dict[str, Any]]:
    """HTTP status and body for an error."""
    kind = next(kind for kind in type(error).__mro__ if kind in STATUS)
    status = STATUS[kind]
    body: dict[str, Any] = {"title": kind.__name__, "status": status, "detail": str(error)}
    if isinstance(error, BadFields):
        body["problems"] = [asdict(problem) for problem in error.problems]
    if isinstance(error, NotLeading):
        body |= {"leader": error.leader, "leader_url": error.url}
    return status, body


def error_of(status: int, body: Mapping[str, Any]) -> GantreeError:
    """The error that a body was made of; a GantreeError for a body that is none of ours."""
    detail = str(body.get("detail", f"the daemon answered with status {status}"))
    problems = _problems_in(body) if body.get("title") == "BadFields" else []
    if problems:
        return BadFields(problems)
    if body.get("title") == "NotLeading":
        leader, url = (_text_in(body, each) for each in ("leader", "leader_url"))
        return NotLeading(detail, leader, url)
    kind = _KIND_OF_NAME.get(str(body.get("title")), GantreeError)
    return GantreeError(detail) if kind is BadFields else kind(detail)


def _problems_in(body: Mapping[str, Any]) -> list[Problem]:
    """The problems of a body; [] where they are not as `problem_of` writes them."""
    try:
        return [Problem(**problem) for problem in body["problems"]]
    except (KeyError, TypeError):
        return []


def _text_in(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    return value if isinstance(value, str) else None


def problem_in(content: bytes) -> dict[str, Any]:
    """The body of an answer that is an error; {} for one that is none of ours."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
