"""Routes that explain and foresee: why, when, what if, the queues, and moves that would let a job start."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from gantree.api import views
from gantree.api.answers import answer, tells
from gantree.api.backend import Backend
from gantree.api.models import DefragmentTold, QueuesTold, WhatIfTold, WhenTold, WhyTold
from gantree.api.queue_view import queues_json
from gantree.api.start_view import alternative_json, defragmentation_json, when_json
from gantree.control.controller import Controller
from gantree.core.alternatives import Change, alternatives
from gantree.core.explain import why

MOST_CHANGES = 8
"""Alternatives of one question: each costs a walk over all that wait, while nothing else is decided."""

Json = dict[str, Any]


class WhatIf(BaseModel):
    """Body of POST /v1/jobs/JOB/what-if: one alternative for each object of fields with what they would be."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"changes": [{"topology.required": "leaf"}]}]},
    )
    changes: list[dict[str, int | float | str | None]] = Field(default=[], max_length=MOST_CHANGES)


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["questions"])
    _add_job_questions(routes, backend)
    _add_defragment(routes, backend)

    @routes.get("/queues", **tells(QueuesTold, "The tree."))
    async def queues() -> Response:
        """The queue tree: the cluster, then each queue, cohort and user below what it is in."""
        rows = await backend.ask(
            lambda controller: queues_json(controller.ledger, controller.clock())
        )
        return answer({"queues": rows})

    return routes


def _add_job_questions(routes: APIRouter, backend: Backend) -> None:
    @routes.get("/jobs/{word}/why", **tells(WhyTold, "The reason, in words and in numbers."))
    async def explain(word: str) -> Response:
        """Why a job is where it is."""
        explained = await backend.ask(
            lambda controller: why(
                controller.ledger, controller.resolve(word), now=controller.clock()
            )
        )
        return answer(views.explanation(explained))

    @routes.get("/jobs/{word}/when", **tells(WhenTold, "The start, and what it hangs on."))
    async def foresee(word: str) -> Response:
        """When a job starts: what was promised, or an estimate."""
        told = await backend.ask(
            lambda controller: when_json(
                controller.ledger, controller.resolve(word), controller.clock()
            )
        )
        return answer(told)

    @routes.post(
        "/jobs/{word}/what-if", **tells(WhatIfTold, "The job as it is, then with each change.")
    )
    async def what_if(word: str, body: WhatIf) -> Response:
        """What would become of a job if it were otherwise. Nothing changes."""
        changes = [tuple(change.items()) for change in body.changes]
        return answer(await backend.ask(lambda controller: _what_if(controller, word, changes)))


def _what_if(controller: Controller, word: str, changes: list[Change]) -> Json:
    job, now = controller.resolve(word), controller.clock()
    found = alternatives(controller.ledger, job, changes, now)
    return {"job": job, "asked_at": now, "alternatives": [alternative_json(each) for each in found]}


def _add_defragment(routes: APIRouter, backend: Backend) -> None:
    @routes.get("/jobs/{word}/defragment", **tells(DefragmentTold, "The moves."))
    async def plan(word: str) -> Response:
        """The moves that would let a waiting job start. 409 if it does not wait."""
        return answer(await backend.ask(lambda controller: _plan(controller, word)))

    @routes.post("/jobs/{word}/defragment", **tells(DefragmentTold, "They were asked for.", 202))
    async def apply(word: str) -> Response:
        """Ask for the moves that let a waiting job start. 409 if there are none."""
        told = await backend.ask(lambda controller: _plan(controller, word, apply=True))
        await backend.loop.advance(backend.controller)
        return answer(told, 202)


def _plan(controller: Controller, word: str, *, apply: bool = False) -> Json:
    job = controller.resolve(word)
    found, reason = controller.moves_for(job)
    if apply:
        controller.defragment(job)
    return defragmentation_json(job, found, reason)
