"""Routes that explain and foresee: why, when, what if, the queues, and moves that would let a job start."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from gantree.api import views
from gantree.api.backend import Backend
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

    model_config = ConfigDict(extra="forbid")
    changes: list[dict[str, int | float | str | None]] = Field(default=[], max_length=MOST_CHANGES)


def add_planning_routes(app: FastAPI, backend: Backend) -> None:
    """Add the routes of this module."""
    _add_job_questions(app, backend)
    _add_defragment(app, backend)

    @app.get("/v1/queues")
    async def queues() -> Json:
        rows = await backend.ask(
            lambda controller: queues_json(controller.ledger, controller.clock())
        )
        return {"queues": rows}


def _add_job_questions(app: FastAPI, backend: Backend) -> None:
    @app.get("/v1/jobs/{word}/why")
    async def explain(word: str) -> Json:
        explained = await backend.ask(
            lambda controller: why(
                controller.ledger, controller.resolve(word), now=controller.clock()
            )
        )
        return views.explanation(explained)

    @app.get("/v1/jobs/{word}/when")
    async def foresee(word: str) -> Json:
        return await backend.ask(
            lambda controller: when_json(
                controller.ledger, controller.resolve(word), controller.clock()
            )
        )

    @app.post("/v1/jobs/{word}/what-if")
    async def what_if(word: str, body: WhatIf) -> Json:
        changes = [tuple(change.items()) for change in body.changes]
        return await backend.ask(lambda controller: _what_if(controller, word, changes))


def _what_if(controller: Controller, word: str, changes: list[Change]) -> Json:
    job, now = controller.resolve(word), controller.clock()
    found = alternatives(controller.ledger, job, changes, now)
    return {"job": job, "asked_at": now, "alternatives": [alternative_json(each) for each in found]}


def _add_defragment(app: FastAPI, backend: Backend) -> None:
    @app.get("/v1/jobs/{word}/defragment")
    async def plan(word: str) -> Json:
        return await backend.ask(lambda controller: _plan(controller, word))

    @app.post("/v1/jobs/{word}/defragment", status_code=202)
    async def apply(word: str) -> Json:
        answer = await backend.ask(lambda controller: _plan(controller, word, apply=True))
        await backend.loop.advance(backend.controller)
        return answer


def _plan(controller: Controller, word: str, *, apply: bool = False) -> Json:
    job = controller.resolve(word)
    found, reason = controller.moves_for(job)
    if apply:
        controller.defragment(job)
    return defragmentation_json(job, found, reason)
