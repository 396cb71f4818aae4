"""The routes. Each asks the controller on its own thread and answers in JSON; nothing is decided here."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from gantree import __version__
from gantree.api import views
from gantree.api.backend import Backend
from gantree.api.client import LONGEST_WAIT_S
from gantree.api.logs import LogState, RankLog, is_over, rank_logs, stream_attempt, stream_job
from gantree.api.problems import MEDIA_TYPE, problem_of
from gantree.api.questions import add_planning_routes
from gantree.control.controller import Controller
from gantree.control.loop import wait_until_set
from gantree.control.submission import Receipt, about
from gantree.formats import read_job
from gantree.model.errors import BadFields, GantreeError, NotFound, Problem
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, HOLDING, Phase

FACTS_AT_ONCE = 500
LARGEST_SEQ = 2**63 - 1

Json = dict[str, Any]


class Submission(BaseModel):
    """Body of POST /v1/jobs: a job file, where relative paths in it start, fields to replace, who hands it in."""

    model_config = ConfigDict(extra="forbid")
    text: str
    source: str = "job.yaml"
    base_dir: str | None = None
    overrides: dict[str, str | int] = {}
    user: str = ""


def build_app(backend: Backend) -> FastAPI:
    """The application around one running control loop."""
    app = FastAPI(
        title="gantree",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    _say_errors_as_problems(app)
    _add_job_routes(app, backend)
    _add_question_routes(app, backend)
    add_planning_routes(app, backend)
    _add_log_route(app, backend)
    _add_site_routes(app, backend)
    return app


def _say_errors_as_problems(app: FastAPI) -> None:
    @app.exception_handler(GantreeError)
    async def gantree_error(request: Request, error: GantreeError) -> JSONResponse:
        status, body = problem_of(error)
        return JSONResponse(body, status, media_type=MEDIA_TYPE)

    @app.exception_handler(RequestValidationError)
    async def bad_request(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [_problem_of_request(each) for each in error.errors()]
        return await gantree_error(request, BadFields(problems))

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        body = {"title": error.detail, "status": error.status_code, "detail": error.detail}
        return JSONResponse(body, error.status_code, media_type=MEDIA_TYPE)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        detail = f"bug in the daemon ({type(error).__name__}: {error}); its log has more"
        body = {"title": "InternalError", "status": 500, "detail": detail}
        return JSONResponse(body, 500, media_type=MEDIA_TYPE)


def _problem_of_request(error: Mapping[str, Any]) -> Problem:
    field = ".".join(str(part) for part in error["loc"][1:]) or str(error["loc"][0])
    return Problem("request", None, field, repr(error.get("input"))[:100], str(error["msg"]))


def _add_job_routes(app: FastAPI, backend: Backend) -> None:
    @app.post("/v1/jobs", status_code=201)
    async def submit(body: Submission) -> Json:
        jobs = await asyncio.to_thread(read_job, body.text, body.source)
        receipt = await backend.ask(lambda controller: _taken(controller, jobs, body))
        backend.loop.wake()
        await backend.loop.advance(backend.controller)
        return {"jobs": views.plain(receipt.jobs), "warnings": list(receipt.warnings)}

    @app.post("/v1/jobs/{word}/cancel", status_code=202)
    async def cancel(word: str) -> Json:
        cancelled = await backend.ask(lambda controller: controller.cancel(word))
        await backend.loop.advance(backend.controller)
        return {"job": cancelled}

    @app.post("/v1/jobs/{word}/hold", status_code=202)
    async def hold(word: str) -> Json:
        held = await backend.ask(lambda controller: controller.hold(word))
        await backend.loop.advance(backend.controller)
        return {"job": held}

    @app.post("/v1/jobs/{word}/release", status_code=202)
    async def release(word: str) -> Json:
        released = await backend.ask(lambda controller: controller.release(word))
        await backend.loop.advance(backend.controller)
        return {"job": released}


def _add_question_routes(app: FastAPI, backend: Backend) -> None:
    @app.get("/v1/jobs")
    async def jobs() -> Json:
        return {"jobs": await backend.ask(lambda controller: views.job_rows(controller.ledger))}

    @app.get("/v1/jobs/{word}")
    async def job(
        word: str,
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0,
        until: Literal["ended", "running"] = "ended",
    ) -> Json:
        wanted = ENDED if until == "ended" else ENDED | HOLDING - {Phase.STARTING}
        deadline = time.monotonic() + wait_s
        while True:
            ticket = backend.loop.changes.ticket()
            detail = await backend.ask(lambda controller: _detail(controller, word))
            left_s = deadline - time.monotonic()
            if detail["phase"] in wanted or left_s <= 0 or backend.loop.stopping:
                return detail
            await wait_until_set(ticket, left_s)


def _taken(controller: Controller, jobs: Sequence[Job], body: Submission) -> Receipt:
    with about(body.source):
        return controller.submit(jobs, body.base_dir, body.overrides, body.user)


def _detail(controller: Controller, word: str) -> Json:
    return views.job_detail(controller.ledger, controller.resolve(word))


@dataclass(frozen=True, slots=True)
class _JobLog:
    """Where the output of one job, or of one rank of it, is found as it comes."""

    backend: Backend
    job: str
    processes: int
    rank: int | None

    def of_attempt(self, attempt: int) -> tuple[RankLog, ...]:
        cluster = self.backend.controller.cluster
        return rank_logs(
            lambda each: cluster.log_path(self.job, attempt, each), self.processes, self.rank
        )

    async def state(self) -> LogState:
        return await self.backend.ask(self._state)

    def _state(self, controller: Controller) -> LogState:
        state, stopping = controller.ledger.jobs[self.job], self.backend.loop.stopping
        held = state.phase in HOLDING
        return LogState(state.attempt, not held or stopping, state.phase in ENDED or stopping)


def _add_log_route(app: FastAPI, backend: Backend) -> None:
    @app.get("/v1/jobs/{word}/logs")
    async def logs(
        word: str,
        rank: Annotated[int | None, Query(ge=0)] = None,
        attempt: Annotated[int | None, Query(ge=1)] = None,
        follow: bool = False,
    ) -> StreamingResponse:
        job, processes, attempts = await backend.ask(
            lambda controller: _job_of_log(controller, word)
        )
        if rank is not None and rank >= processes:
            raise NotFound(f"{job} has the ranks 0 to {processes - 1}, no rank {rank}")
        if attempt is not None and attempt > attempts and not follow:
            raise NotFound(f"{job} has had {attempts} attempts, no attempt {attempt}")
        log = _JobLog(backend, job, processes, rank)
        if attempt is None:
            stream = stream_job(log.state, log.of_attempt, follow=follow)
        else:
            over = is_over(log.state, attempt, follow=follow)
            stream = stream_attempt(log.of_attempt(attempt), over)
        return StreamingResponse(stream, media_type="text/plain; charset=utf-8")


def _job_of_log(controller: Controller, word: str) -> tuple[str, int, int]:
    job = controller.resolve(word)
    state = controller.ledger.jobs.get(job)
    if state is None:
        raise NotFound(f"{job} was rejected, so it never wrote anything")
    return job, state.spec.processes, state.attempt


def _add_site_routes(app: FastAPI, backend: Backend) -> None:
    @app.get("/v1/cluster")
    async def cluster() -> Json:
        return await backend.ask(lambda controller: views.cluster(controller.ledger))

    @app.get("/v1/facts")
    async def facts(
        after: Annotated[int, Query(ge=0, le=LARGEST_SEQ)] = 0, follow: bool = False
    ) -> StreamingResponse:
        lines = _fact_lines(backend, after, follow=follow)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @app.get("/v1/health")
    async def health() -> Json:
        return await backend.ask(lambda controller: _health(controller, backend.started_at))


async def _fact_lines(backend: Backend, after: int, *, follow: bool) -> AsyncIterator[str]:
    while True:
        ticket = backend.loop.changes.ticket()
        start = after
        page = await backend.ask(
            lambda controller: tuple(islice(controller.journal.facts(start), FACTS_AT_ONCE))  # noqa: B023 - awaited before start changes
        )
        if page:
            after = page[-1].seq
            yield "".join(json.dumps(views.fact(recorded)) + "\n" for recorded in page)
        elif not follow or backend.loop.stopping:
            return
        else:
            await ticket.wait()


def _health(controller: Controller, started_at: float) -> Json:
    site = controller.ledger.fabric
    return {
        "version": __version__,
        "pid": os.getpid(),
        "cluster": None if site is None else site.cluster.name,
        "epoch": controller.epoch,
        "turns": controller.journal.turns(),
        "started_at": started_at,
        "set_aside": len(controller.journal.all_set_aside()),
    }
