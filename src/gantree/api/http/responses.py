"""Responses of routes: plain values as JSON, their documentation in the OpenAPI, and ETags.

The views make the values. A model only describes them: validating a long list would cost more than making it. The tests
hold the two equal, over the whole OpenAPI and a real daemon.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import Header
from fastapi.responses import Response
from pydantic import BaseModel

from gantree.model.errors import BadFields, Problem, Stale

Json = Mapping[str, Any]

IfMatch = Annotated[
    str | None,
    Header(
        description='Change it only if this is still its version, as an ETag: `"3f2a"`; else 412.',
    ),
]


def json_response(content: object, status: int = 200, version: str | None = None) -> Response:
    """Plain values as the body of an answer; version becomes its ETag."""
    headers = {} if version is None else {"ETag": f'"{version}"'}
    return Response(json_bytes(content), status, headers, "application/json")


def json_bytes(content: object) -> bytes:
    """Plain values as JSON."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def documented(model: type[BaseModel], what: str, status: int = 200) -> dict[str, Any]:
    """Arguments of a route's decorator that document its answer."""
    return {
        "status_code": status,
        "response_model": None,
        "responses": {status: {"model": model, "description": what}},
    }


def documented_stream(media_type: str, what: str, example: str, **others: str) -> dict[str, Any]:
    """The same for a stream of text. others: examples of other media types, by name."""
    content = {
        name: {"schema": {"type": "string"}, "example": each}
        for name, each in {media_type: example, **others}.items()
    }
    return {
        "response_model": None,
        "response_class": Response,
        "responses": {200: {"content": content, "description": what}},
    }


def etag_of(content: Json) -> str:
    """The version of an object: a digest of its JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return blake2b(text, digest_size=8).hexdigest()


def check_version(if_match: str | None, content: Json, what: str) -> None:
    """Raise Stale if the object no longer has the version of If-Match, BadFields for what is no version."""
    if if_match is None or if_match.strip() == "*":
        return
    wanted = [each.strip() for each in if_match.split(",")]
    if not all(len(each) > 2 and each[0] == each[-1] == '"' for each in wanted):
        allowed = 'a version in quotes, as an ETag has it: "3f2a", or *'
        raise BadFields([Problem("request", None, "If-Match", repr(if_match)[:100], allowed)])
    if f'"{etag_of(content)}"' not in wanted:
        raise Stale(f"{what} has changed since you read it; read it again, then decide")
