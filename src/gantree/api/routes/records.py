"""Routes of what ran: the record of an attempt, and the same job once more on an equal place."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from gantree.api import views
from gantree.api.access import Caller, WhoAsks
from gantree.api.answers import answer, tells
from gantree.api.backend import Backend
from gantree.api.models import Login, ReceiptTold, RecordTold
from gantree.api.permissions import Need, check_submission, job_for, needs
from gantree.control.controller import Controller
from gantree.control.rerun import demanded, obstacles
from gantree.control.submission import Receipt
from gantree.model.errors import BadInput, Conflict, NotFound, Unsupported
from gantree.model.jobs import Job

Json = dict[str, Any]


class Rerun(BaseModel):
    """Which attempt is to be run again; None: the last. anyhow: also where no equal place can be had."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"attempt": 1}]})
    attempt: int | None = Field(None, ge=1)
    anyhow: bool = False
    user: str = Field("", description="Whose the new job is; the caller's where nobody is named.")
    login: Login = ""


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/jobs", tags=["records"])

    @routes.get(
        "/{word}/record",
        **tells(RecordTold, "What ran, where, and on what."),
        **needs(Need.READ),
    )
    async def record(
        word: str,
        caller: WhoAsks,
        attempt: Annotated[int | None, Query(ge=1, description="None: the last.")] = None,
    ) -> Any:
        """The record of one attempt of a job. 404 for an attempt that was never started."""
        job, spec, number = await backend.ask(
            lambda controller: _attempt(controller, caller, word, attempt)
        )
        return answer({**await _record(backend, job, number), "data": views.plain(spec.data)})

    @routes.post(
        "/{word}/rerun",
        **tells(ReceiptTold, "The job is taken, and durable.", 201),
        **needs(Need.SUBMIT),
    )
    async def rerun(word: str, body: Rerun, caller: WhoAsks) -> Any:
        """Hand in the same job again, to start on an equal place only. 409 where the cluster has none."""
        job, spec, number = await backend.ask(
            lambda controller: _attempt(controller, caller, word, body.attempt)
        )
        ran = await _record(backend, job, number)
        changes = await asyncio.to_thread(backend.controller.cluster.changes, job, number)
        receipt = await backend.ask(lambda controller: _again(controller, caller, spec, ran, body))
        await backend.loop.advance(backend.controller)
        jobs = [{"job": each.job, "name": each.name} for each in receipt.jobs]
        warnings = [f"since {job} attempt {number}: {each}" for each in changes]
        return answer({"jobs": jobs, "warnings": [*receipt.warnings, *warnings]}, 201)

    return routes


def _attempt(
    controller: Controller, caller: Caller, word: str, attempt: int | None
) -> tuple[str, Job, int]:
    """The job's id and specification, and the attempt that is meant. Raises NotFound."""
    job = job_for(controller, caller, word, Need.READ)
    state = controller.ledger.jobs.get(job)
    if state is None:
        raise NotFound(f"{job} was rejected, so it never ran")
    if state.attempt == 0:
        raise NotFound(f"{job} has not been started yet: {state.phase.value}")
    if attempt is not None and attempt > state.attempt:
        raise NotFound(f"{job} has had {state.attempt} attempts, no attempt {attempt}")
    return job, state.spec, attempt or state.attempt


async def _record(backend: Backend, job: str, attempt: int) -> Json:
    try:
        found = await asyncio.to_thread(backend.controller.cluster.record, job, attempt)
    except OSError as error:
        raise Conflict(f"the record of {job} attempt {attempt} cannot be read: {error}") from error
    if found is None:
        raise NotFound(f"attempt {attempt} of {job} was never started, so there is no record of it")
    return found


def _again(controller: Controller, caller: Caller, spec: Job, ran: Json, body: Rerun) -> Receipt:
    """Hand the job in with the demand for an equal place, or as it was where that cannot be had and need not be."""
    fabric, again = controller.ledger.fabric, replace(spec, user="", held=False)
    user = check_submission(caller, [again], {}, body.user, body.login)
    where = f"{ran['job']} attempt {ran['attempt']}"
    stands: tuple[str, ...]
    if not ran["members"]:
        stands = (f"no place of {where} is on record",)
    else:
        assert fabric is not None  # something was placed
        asked = demanded(again, ran)
        try:
            stands = obstacles(asked, ran, fabric)
        except (BadInput, Unsupported) as error:
            stands = (str(error),)
        again = again if stands else asked
    if stands and not body.anyhow:
        raise Conflict(
            f"this cluster has no place equal to that of {where}: {'; '.join(stands)}."
            " To run it on any place: --anyhow"
        )
    receipt = controller.submit([again], None, {}, user)
    unequal = tuple(f"not on an equal place: {each}" for each in stands)
    return Receipt(receipt.jobs, (*receipt.warnings, *unequal))
