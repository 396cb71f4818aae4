"""Routes of the policy: the version in force, its history, the effect of another one, apply, roll back."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, JsonValue

from gantree.api.access.access import CurrentCaller
from gantree.api.access.audit import note_what
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend, QueryBackend
from gantree.api.http.request_body import Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import IfMatch, check_version, documented, etag_of, json_response
from gantree.api.views import policy_view, queries
from gantree.control.engine.controller import Controller
from gantree.control.notifications.settings import unannounced_budgets
from gantree.control.requests.policy_change import idle_rules
from gantree.control.requests.policy_fit import jobs_without_queue
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.policy_versions import version_of as version_on_record

Json = dict[str, Any]
LONGEST_TEXT = 1024 * 1024
LARGEST_NUMBER = 2**31 - 1
Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]


class PolicyRequest(Body):
    """A policy file: its text, and its name in messages."""

    text: str = Field(max_length=LONGEST_TEXT, examples=["preset: fair\n"])
    source: str = Field("policy.yaml", max_length=4096)


class RollbackRequest(Body):
    """The version whose text is to rule again."""

    version: int = Field(strict=True, ge=1, le=LARGEST_NUMBER, examples=[1])


class VersionRow(OpenModel):
    """A version: its number, when it was adopted, who handed it in, from which file."""

    number: int | None = Field(examples=[2])
    at: float | None
    by: str = Field(examples=["ada"])
    source: str = Field(examples=["policy.yaml"])


class PolicyVersionResponse(VersionRow):
    """A version with its text; null where the default preset rules because none was ever named."""

    text: str | None


class PolicyVersionsResponse(BaseModel):
    """All versions, oldest first; the last one rules."""

    versions: list[VersionRow]


class PolicyAdoptedResponse(BaseModel):
    """The version that rules now, and sentences on jobs whose queue it lacks and on rules that do nothing here."""

    version: PolicyVersionResponse
    warnings: list[str]


class PolicyChangeResponse(OpenModel):
    """What a policy would change now: rules, starts, stops, guarantees, numbers; nothing of it was done."""

    rules: list[dict[str, JsonValue]]
    starts: list[str]
    stops: list[dict[str, JsonValue]]
    loses_guarantee: list[str]
    gains_guarantee: list[str]
    priorities: list[dict[str, JsonValue]]
    without_queue: dict[str, list[str]]
    warnings: list[str]
    resumes: list[str]
    suspends: list[str]


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = reads(backend)
    _add_changes(routes, backend)
    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/policy", tags=["policy"])
    _add_gets(routes, backend)
    return routes


def _add_gets(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get(
        "",
        **documented(PolicyVersionResponse, "The policy in force; its version is the ETag."),
        **needs(Need.SEE_ALL),
    )
    async def policy() -> Response:
        """The policy in force."""
        result = await backend.read(queries.policy_in_force)
        return json_response(result, version=etag_of(result))

    @routes.get(
        "/versions", **documented(PolicyVersionsResponse, "The versions."), **needs(Need.SEE_ALL)
    )
    async def versions() -> Response:
        """All versions of the policy, without their texts."""
        return json_response({"versions": await backend.read(queries.policy_versions)})

    @routes.get(
        "/versions/{number}",
        **documented(PolicyVersionResponse, "The version."),
        **needs(Need.SEE_ALL),
    )
    async def one_version(number: Number) -> Response:
        """One version with its text."""
        return json_response(await backend.read(queries.policy_version, number))


def _add_changes(routes: APIRouter, backend: Backend) -> None:
    @routes.post(
        "/what-if", **documented(PolicyChangeResponse, "What would change."), **needs(Need.OPERATE)
    )
    async def what_if(body: PolicyRequest, caller: CurrentCaller) -> Response:
        """What a policy would change if it ruled from now on. 422 for one that is wrong or does not suit."""
        submitted = PolicyText(body.text, body.source)
        result = await backend.read_forked(queries.policy_change, submitted, asker=caller.name)
        return json_response(result)

    @routes.post("", **documented(PolicyAdoptedResponse, "It rules."), **needs(Need.OPERATE))
    async def apply(
        body: PolicyRequest, caller: CurrentCaller, request: Request, if_match: IfMatch = None
    ) -> Response:
        """Let a policy rule from now on, as a new version; the one in force already stays that. 422 as what-if."""
        submitted = PolicyText(body.text, body.source)
        return await adopt(lambda controller: submitted, caller.name, request, if_match)

    @routes.post(
        "/rollback", **documented(PolicyAdoptedResponse, "It rules."), **needs(Need.OPERATE)
    )
    async def rollback(
        body: RollbackRequest, caller: CurrentCaller, request: Request, if_match: IfMatch = None
    ) -> Response:
        """Let the text of an older version rule again, as a new version."""

        def text_of(controller: Controller) -> PolicyText:
            old = version_on_record(controller.ledger, body.version)
            return PolicyText(old.text, old.source)

        return await adopt(text_of, caller.name, request, if_match)

    async def adopt(text_of: Any, by: str, request: Request, if_match: str | None) -> Response:
        def asked(controller: Controller) -> Json:
            check_version(if_match, policy_view.in_force(controller.ledger), "the policy")
            version = controller.adopt_policy(text_of(controller), by)
            return {"version": policy_view.version(version), "warnings": _warnings(controller)}

        result = await backend.call_controller(asked)
        backend.loop.changes.tick()
        note_what(request.scope, f"version {result['version']['number']}")
        return json_response(result)


def _warnings(controller: Controller) -> list[str]:
    lost = jobs_without_queue(controller.ledger)
    return [
        f"queue {queue} is not in the policy, and has jobs that go on: {', '.join(jobs[:10])}"
        for queue, jobs in lost.items()
    ] + [
        *idle_rules(controller.ledger),
        *unannounced_budgets(controller.policy, controller.notify),
    ]
