"""Routes of run records: the record of an attempt, and a rerun of the job on an equal placement."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import ConfigDict, Field, StrictBool

from gantree.api.access.access import Access, Caller, CurrentCaller
from gantree.api.access.permissions import Need, check_submission, job_for, needs
from gantree.api.backend import Backend, QueryBackend
from gantree.api.http.request_body import Body
from gantree.api.http.response_models.base import Login
from gantree.api.http.response_models.jobs import ReceiptResponse
from gantree.api.http.response_models.records import RecordResponse
from gantree.api.http.responses import documented, json_response
from gantree.api.views import job_view
from gantree.control.engine.controller import Controller
from gantree.control.requests.read_view import ReadView
from gantree.control.requests.rerun import demanded, obstacles
from gantree.control.requests.submission_checks import Receipt
from gantree.model.errors import BadInput, Conflict, NotFound, Unsupported
from gantree.model.jobs import Job

Json = dict[str, Any]


class RerunRequest(Body):
    """Which attempt is to be run again; None: the last. anyhow: also where no equal place can be had."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"attempt": 1}]})
    attempt: int | None = Field(None, strict=True, ge=1)
    anyhow: StrictBool = False
    user: str = Field("", description="Whose the new job is; the caller's where nobody is named.")
    login: Login = ""


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = reads(backend)
    _add_rerun(routes, backend)
    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/jobs", tags=["records"])

    @routes.get(
        "/{word}/record",
        **documented(RecordResponse, "What ran, where, and on what."),
        **needs(Need.READ),
    )
    async def record(
        word: str,
        caller: CurrentCaller,
        attempt: Annotated[int | None, Query(ge=1, description="None: the last.")] = None,
    ) -> Any:
        """The record of one attempt of a job. 404 for an attempt that was never started."""
        job, spec, number = await backend.read_inline(attempt_of, caller, word, attempt)
        return json_response(
            {**await _record(backend, job, number), "data": job_view.plain(spec.data)}
        )

    return routes


def _add_rerun(routes: APIRouter, backend: Backend) -> None:
    @routes.post(
        "/{word}/rerun",
        **documented(ReceiptResponse, "The job is taken, and durable.", 201),
        **needs(Need.SUBMIT),
    )
    async def rerun(word: str, body: RerunRequest, caller: CurrentCaller, request: Request) -> Any:
        """Hand in the same job again, to start on an equal place only. 409 where the cluster has none."""
        job, spec, number = await backend.read_inline(attempt_of, caller, word, body.attempt)
        ran = await _record(backend, job, number)
        changes = await asyncio.to_thread(backend.controller.cluster.changes, job, number)
        access: Access = request.app.state.access
        user = check_submission(caller, [replace(spec, user="")], {}, body.user, body.login)
        access.check_hands_in_for(caller, user, spec.queue)
        anyhow = body.anyhow
        receipt = await backend.call_controller(
            lambda asked: _again(asked, spec, ran, user, anyhow=anyhow)
        )
        await backend.loop.advance(backend.controller)
        jobs = [{"job": each.job, "name": each.name} for each in receipt.jobs]
        warnings = [f"since {job} attempt {number}: {each}" for each in changes]
        return json_response({"jobs": jobs, "warnings": [*receipt.warnings, *warnings]}, 201)


def attempt_of(
    view: ReadView, caller: Caller, word: str, attempt: int | None
) -> tuple[str, Job, int]:
    """The job's id and specification, and the attempt that is meant. Raises NotFound."""
    job = job_for(view, caller, word, Need.READ)
    state = view.ledger.jobs.get(job)
    if state is None:
        raise NotFound(f"{job} was rejected, so it never ran")
    if state.attempt == 0:
        raise NotFound(f"{job} has not been started yet: {state.phase.value}")
    if attempt is not None and attempt > state.attempt:
        raise NotFound(f"{job} has had {state.attempt} attempts, no attempt {attempt}")
    return job, state.spec, attempt or state.attempt


async def _record(backend: QueryBackend, job: str, attempt: int) -> Json:
    try:
        found = await asyncio.to_thread(backend.record, job, attempt)
    except OSError as error:
        raise Conflict(f"the record of {job} attempt {attempt} cannot be read: {error}") from error
    if found is None:
        raise NotFound(f"attempt {attempt} of {job} was never started, or its record was deleted")
    return found


def _again(controller: Controller, spec: Job, ran: Json, user: str, *, anyhow: bool) -> Receipt:
    """Hand the job in with the demand for an equal place, or as it was where that cannot be had and need not be."""
    fabric, again = controller.ledger.fabric, replace(spec, user="", held=False)
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
    if stands and not anyhow:
        raise Conflict(
            f"this cluster has no place equal to that of {where}: {'; '.join(stands)}."
            " To run it on any place: --anyhow"
        )
    receipt = controller.submit([again], None, {}, user)
    unequal = tuple(f"not on an equal place: {each}" for each in stands)
    return Receipt(receipt.jobs, (*receipt.warnings, *unequal))
