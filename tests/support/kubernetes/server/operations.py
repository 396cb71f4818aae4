"""What a request does, without HTTP: a verb on a target becomes a call of the objects, its outcome becomes bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from support.kubernetes.rules.resources import Resource
from support.kubernetes.rules.scales import PART
from support.kubernetes.server.lists import Lists, Question
from support.kubernetes.server.objects import PATCHES, DeleteOptions, Objects
from support.kubernetes.server.paths import Target
from support.kubernetes.server.statuses import (
    Json,
    NoSuchPath,
    Refusal,
    bad_request,
    not_allowed,
    success,
)
from support.kubernetes.server.storage import Stored, encode
from support.kubernetes.server.subresources import POSTS

HELD_BACK = frozenset({"Foreground", "Orphan"})
decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a resource. body is as it came."""

    verb: str
    resource: Resource
    target: Target
    query: Mapping[str, str]
    body: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A code and a body."""

    code: int
    body: bytes


def carry_out(objects: Objects, lists: Lists, request: Request) -> Answer:
    """Do what is asked."""
    if request.query.get("dryRun"):
        raise bad_request("this server knows no dry runs")
    target, resource = request.target, request.resource
    if target.part and target.part not in resource.subresources:
        raise NoSuchPath
    _check_namespace(resource, request)
    match request.verb:
        case "get":
            return _get(objects, request)
        case "list":
            question = Question.read(resource, target.namespace, request.query)
            return Answer(200, lists.answer(resource, question, request.query))
        case "create":
            return _create(objects, request)
        case "update" | "patch":
            return _update(objects, request)
        case "delete":
            return _delete(objects, request)
        case "deletecollection":
            return _delete_all(objects, lists, request)
    raise not_allowed()


def _check_namespace(resource: Resource, request: Request) -> None:
    """What is in a namespace is above it only to be listed."""
    target = request.target
    if target.namespace and not resource.namespaced:
        raise NoSuchPath
    if resource.namespaced and not target.namespace and request.verb != "list":
        raise NoSuchPath if target.name else not_allowed()


def _object(resource: Resource, stored: Stored, code: int = 200) -> Answer:
    return Answer(code, resource.head + stored.encoded[1:])


def _get(objects: Objects, request: Request) -> Answer:
    target, resource = request.target, request.resource
    stored = objects.get(resource, target.namespace, target.name)
    if target.part == PART and resource.scale is not None:
        return Answer(200, encode(resource.scale.got(stored.content)))
    return _object(resource, stored)


def _create(objects: Objects, request: Request) -> Answer:
    target, resource = request.target, request.resource
    body = object_of(request.body)
    if not target.part:
        if target.name:
            raise not_allowed()
        return _object(resource, objects.create(resource, target.namespace, body), 201)
    post = POSTS.get((resource.plural, target.part))
    if post is None:
        raise not_allowed()
    post(objects, resource, target.namespace, target.name, body)
    return Answer(201, encode(success(201)))


def _update(objects: Objects, request: Request) -> Answer:
    if request.target.part == PART:
        return _scale(objects, request)
    target, resource = request.target, request.resource
    if request.verb == "update":
        body = object_of(request.body)
        stored = objects.replace(resource, target.namespace, target.name, body, target.part)
    else:
        patch = json_of(request.body)
        stored = objects.patch(
            resource, target.namespace, target.name, patch, request.media_type, target.part
        )
    return _object(resource, stored)


def _scale(objects: Objects, request: Request) -> Answer:
    """Write how many there are to be."""
    target, resource = request.target, request.resource
    paths, stored = resource.scale, objects.get(resource, target.namespace, target.name)
    assert paths is not None, "whoever has the subresource says where its numbers are"
    said, patched = json_of(request.body), PATCHES.get(request.media_type)
    if request.verb == "update":
        made = paths.scaled(stored.content, lambda _: said)
    elif patched is not None:
        made = paths.scaled(stored.content, lambda scale: patched(scale, said))
    else:
        raise Refusal(415, "UnsupportedMediaType", f"unknown format: {request.media_type}")
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    kept = objects.replace(resource, target.namespace, target.name, {**head, **made})
    return Answer(200, encode(paths.scale_of(kept.content)))


def _delete(objects: Objects, request: Request) -> Answer:
    target, resource = request.target, request.resource
    options = DeleteOptions.read(object_of(request.body or b"{}"), request.query)
    stored, is_gone = objects.delete(resource, target.namespace, target.name, options)
    if is_gone and not resource.rules.answers_object_on_delete():
        metadata = stored.content["metadata"]
        details = {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]}
        if resource.group:
            details["group"] = resource.group
        return Answer(200, encode(success(details=details)))
    return _object(resource, stored, 202 if options.propagation in HELD_BACK else 200)


def _delete_all(objects: Objects, lists: Lists, request: Request) -> Answer:
    """Delete every object that the query asks for. The answer lists them as they were."""
    target, resource = request.target, request.resource
    options = DeleteOptions.read(object_of(request.body or b"{}"), request.query)
    question = Question.read(resource, target.namespace, request.query)
    body = lists.answer(resource, question, request.query)
    for stored in objects.table(resource).sorted():
        if question.covers(stored):
            objects.delete(resource, *stored.key, options)
    return Answer(200, body)


def json_of(body: bytes) -> Any:
    """What a body says."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body of the request is no JSON: {error}") from None


def object_of(body: bytes) -> Json:
    """What a body says, which must be an object."""
    said = json_of(body)
    if not isinstance(said, dict):
        raise bad_request("the body of the request is no object")
    return said
