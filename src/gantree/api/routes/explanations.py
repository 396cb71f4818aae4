"""Routes of explanations and forecasts: which job, why, when, what-if, queues, and moves that let a job start."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import ConfigDict, Field

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend, QueryBackend
from gantree.api.http.request_body import Body
from gantree.api.http.response_models.explanations import (
    DefragmentResponse,
    WhatIfResponse,
    WhenResponse,
    WhyResponse,
)
from gantree.api.http.response_models.jobs import JobIdResponse
from gantree.api.http.response_models.site import QueuesResponse
from gantree.api.http.responses import documented, json_response
from gantree.api.views import queries as asked
from gantree.control.engine.controller import Controller
from gantree.core.cycle.moves import Defragmentation, are_under_way
from gantree.model.errors import Conflict

MOST_CHANGES = 8
"""Alternatives of one question: each costs a walk over all that wait."""
MOST_STEPS = 100
"""Turns that moves wait for at most: those of a long inbox come first."""

Json = dict[str, Any]


class DefragmentRequest(Body):
    """Body of POST /v1/jobs/JOB/defragment: the digest of the plan that was shown; empty: the plan of now."""

    plan: str = Field("", max_length=64, examples=["4f0c92ab17de"])


class WhatIfRequest(Body):
    """Body of POST /v1/jobs/JOB/what-if: one alternative for each object of fields with what they would be."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"changes": [{"topology.required": "leaf"}]}]},
    )
    changes: list[dict[str, int | float | str | None]] = Field(default=[], max_length=MOST_CHANGES)


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = reads(backend)
    _add_defragment(routes, backend)
    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1", tags=["questions"])
    _add_job_questions(routes, backend)

    @routes.get("/job-id", **documented(JobIdResponse, "The job."), **needs(Need.SEE))
    async def job_id(
        caller: CurrentCaller, name: Annotated[str, Query(min_length=1, max_length=1024)]
    ) -> Response:
        """The job that a person means by an id or a name: a live one of this name before one that has ended.

        409 if several live jobs have this name.
        """
        return json_response(await backend.read(asked.meant_job, caller, name))

    @routes.get("/queues", **documented(QueuesResponse, "The tree."), **needs(Need.KNOWN))
    async def queues(caller: CurrentCaller) -> Response:
        """The queue tree: the cluster, then each queue, cohort and user below what it is in."""
        return json_response({"queues": await backend.read(asked.queues, caller)})

    return routes


def _add_job_questions(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get(
        "/jobs/{word}/why",
        **documented(WhyResponse, "The reason, in words and in numbers."),
        **needs(Need.SEE),
    )
    async def explain(word: str, caller: CurrentCaller) -> Response:
        """Why a job is where it is."""
        is_of_cluster = await backend.is_service_of_cluster(word)
        read = backend.read_services if is_of_cluster else backend.read_adaptive
        explained = await read(asked.explained, caller, word, asker=caller.name)
        await backend.add_remaining(explained)
        await backend.add_observed(explained)
        return json_response(explained)

    @routes.get(
        "/jobs/{word}/when",
        **documented(WhenResponse, "The start, and what it hangs on."),
        **needs(Need.SEE),
    )
    async def foresee(word: str, caller: CurrentCaller) -> Response:
        """When a job starts: what was promised, or an estimate."""
        return json_response(
            await backend.read_adaptive(asked.start, caller, word, asker=caller.name)
        )

    @routes.post(
        "/jobs/{word}/what-if",
        **documented(WhatIfResponse, "The job as it is, then with each change."),
        **needs(Need.SEE),
    )
    async def what_if(word: str, body: WhatIfRequest, caller: CurrentCaller) -> Response:
        """What would become of a job if it were otherwise. Nothing changes."""
        changes = [tuple(change.items()) for change in body.changes]
        result = await backend.read_forked(asked.what_if, caller, word, changes, asker=caller.name)
        return json_response(result)


def _add_defragment(routes: APIRouter, backend: Backend) -> None:
    @routes.get(
        "/jobs/{word}/defragment",
        **documented(DefragmentResponse, "The moves."),
        **needs(Need.OPERATE),
    )
    async def plan(word: str, caller: CurrentCaller) -> Response:
        """The moves that would let a waiting job start. 409 if it does not wait."""
        found, _ = await backend.read_forked(asked.moves, word, asker=caller.name)
        return json_response(found)

    @routes.post(
        "/jobs/{word}/defragment",
        **documented(DefragmentResponse, "They are made.", 202),
        **needs(Need.OPERATE),
    )
    async def apply(
        word: str, caller: CurrentCaller, body: DefragmentRequest | None = None
    ) -> Response:
        """Make the moves that let a waiting job start, exactly those of the answer.

        409, and nothing moves, if there are none, if the plan is not the given one any more, or if the cluster changes
        before it can be carried out.
        """
        found, plan = await backend.read_forked(asked.moves, word, asker=caller.name)
        shown = body.plan if body is not None else ""
        if plan is None:
            raise Conflict(found["reason"])
        if shown not in ("", plan.digest):
            raise Conflict(_changed(found))
        await _carry_out(backend, plan)
        return json_response(found, 202)


async def _carry_out(backend: Backend, plan: Defragmentation) -> None:
    """Request the moves of a plan and wait for the decision. Raises Conflict where they were not made."""
    event_id = await backend.call_controller(lambda controller: controller.jobs.defragment(plan))

    def is_decided(controller: Controller) -> bool:
        place = controller.journal.place_of(event_id)
        return place is not None and place <= controller.journal.cursor()

    for _ in range(MOST_STEPS):
        await backend.loop.advance(backend.controller)
        if await backend.call_controller(is_decided):
            break
    if not await backend.call_controller(lambda one: are_under_way(one.ledger, plan)):
        raise Conflict(
            f"the cluster changed before the moves for {plan.job} could be made: nothing was moved. See the new plan: "
            f"gantree defragment {plan.job}"
        )


def _changed(found: Json) -> str:
    """What to say where the plan is not the one that was shown."""
    plan = found["plan"]
    moves = ", ".join(
        f"{each['job']} from {', '.join(each['source']['nodes'])} to {', '.join(each['target']['nodes'])}"
        for each in plan["moves"]
    )
    return (
        f"the plan has changed since it was shown: nothing was moved. Now these gangs would move for {found['job']}: "
        f"{moves}. To make these moves: gantree defragment {found['job']} --apply --plan {plan['digest']}"
    )
