"""Routes of the policy: the version in force, its history, what another would change, apply one, go back to one."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, JsonValue

from gantree.api.access.access import WhoAsks
from gantree.api.access.audit import note_what
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend, Reads
from gantree.api.http.request_body import Body
from gantree.api.http.response_models import Told
from gantree.api.http.responses import IfMatch, answer, check_version, tells, version_of
from gantree.api.views import policy_view, queries
from gantree.control.engine.controller import Controller
from gantree.control.requests.policy_change import idle_rules
from gantree.control.requests.policy_fit import jobs_without_queue
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.policy_versions import version_of as version_on_record

Json = dict[str, Any]
LONGEST_TEXT = 1024 * 1024
LARGEST_NUMBER = 2**31 - 1
Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]


class PolicyHandedIn(Body):
    """A policy file: its text, and its name in messages."""

    text: str = Field(max_length=LONGEST_TEXT, examples=["preset: fair\n"])
    source: str = Field("policy.yaml", max_length=4096)


class GoingBack(Body):
    """The version whose text is to rule again."""

    version: int = Field(ge=1, le=LARGEST_NUMBER, examples=[1])


class VersionRow(Told):
    """A version: its number, when it was adopted, who handed it in, from which file."""

    number: int | None = Field(examples=[2])
    at: float | None
    by: str = Field(examples=["ada"])
    source: str = Field(examples=["policy.yaml"])


class VersionTold(VersionRow):
    """A version with its text; null where the default preset rules because none was ever named."""

    text: str | None


class VersionsTold(BaseModel):
    """All versions, oldest first; the last one rules."""

    versions: list[VersionRow]


class AdoptedTold(BaseModel):
    """The version that rules now, and sentences on jobs whose queue it lacks and on rules that do nothing here."""

    version: VersionTold
    warnings: list[str]


class ChangeTold(Told):
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


def reads(backend: Reads) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/policy", tags=["policy"])
    _add_looks(routes, backend)
    return routes


def _add_looks(routes: APIRouter, backend: Reads) -> None:
    @routes.get(
        "",
        **tells(VersionTold, "The policy in force; its version is the ETag."),
        **needs(Need.SEE_ALL),
    )
    async def policy() -> Response:
        """The policy in force."""
        told = await backend.read(queries.policy_in_force)
        return answer(told, version=version_of(told))

    @routes.get("/versions", **tells(VersionsTold, "The versions."), **needs(Need.SEE_ALL))
    async def versions() -> Response:
        """All versions of the policy, without their texts."""
        return answer({"versions": await backend.read(queries.policy_versions)})

    @routes.get("/versions/{number}", **tells(VersionTold, "The version."), **needs(Need.SEE_ALL))
    async def one_version(number: Number) -> Response:
        """One version with its text."""
        return answer(await backend.read(queries.policy_version, number))


def _add_changes(routes: APIRouter, backend: Backend) -> None:
    @routes.post("/what-if", **tells(ChangeTold, "What would change."), **needs(Need.OPERATE))
    async def what_if(body: PolicyHandedIn, caller: WhoAsks) -> Response:
        """What a policy would change if it ruled from now on. 422 for one that is wrong or does not suit."""
        handed_in = PolicyText(body.text, body.source)
        told = await backend.work_out(queries.policy_change, handed_in, asker=caller.name)
        return answer(told)

    @routes.post("", **tells(AdoptedTold, "It rules."), **needs(Need.OPERATE))
    async def apply(
        body: PolicyHandedIn, caller: WhoAsks, request: Request, if_match: IfMatch = None
    ) -> Response:
        """Let a policy rule from now on, as a new version; the one in force already stays that. 422 as what-if."""
        handed_in = PolicyText(body.text, body.source)
        return await adopt(lambda controller: handed_in, caller.name, request, if_match)

    @routes.post("/rollback", **tells(AdoptedTold, "It rules."), **needs(Need.OPERATE))
    async def rollback(
        body: GoingBack, caller: WhoAsks, request: Request, if_match: IfMatch = None
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

        told = await backend.ask(asked)
        backend.loop.changes.tick()
        note_what(request.scope, f"version {told['version']['number']}")
        return answer(told)


def _warnings(controller: Controller) -> list[str]:
    lost = jobs_without_queue(controller.ledger)
    return [
        f"queue {queue} is not in the policy, and has jobs that go on: {', '.join(jobs[:10])}"
        for queue, jobs in lost.items()
    ] + idle_rules(controller.ledger)
