"""Routes of jobs: submit, list, get, wait, cancel, hold, release. Explanations are in `explanations`."""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from pydantic import ConfigDict, Field, JsonValue, model_validator

from gantree.api.access.access import Access, Caller, CurrentCaller
from gantree.api.access.audit import note_what
from gantree.api.access.permissions import (
    Need,
    changes_service,
    check_need,
    check_submission,
    job_for,
    job_visibility,
    needs,
    queue_of,
)
from gantree.api.backend import Backend, QueryBackend
from gantree.api.client.request import LONGEST_WAIT_S
from gantree.api.http.request_body import WITHOUT_FIELDS, Body
from gantree.api.http.response_models.base import Login
from gantree.api.http.response_models.explanations import ForecastResponse
from gantree.api.http.response_models.jobs import (
    EXAMPLE_JOB,
    EXAMPLE_JOB_FILE,
    PHASES,
    JobCommandResponse,
    JobResponse,
    JobsResponse,
    ReceiptResponse,
)
from gantree.api.http.responses import (
    IfMatch,
    check_version,
    documented,
    etag_of,
    json_bytes,
    json_response,
)
from gantree.api.streams.streaming import (
    AuthorizedStreamingResponse,
    CurrentStream,
    StreamAuthorization,
)
from gantree.api.views import queries
from gantree.api.views.job_list import Filter
from gantree.control.engine.controller import Controller
from gantree.control.engine.group_commit import GroupCommit
from gantree.control.engine.loop import wait_until_set
from gantree.control.requests.job_commands import JobCommands
from gantree.control.requests.job_ids import Submitted
from gantree.control.requests.submission_checks import Receipt
from gantree.control.requests.submissions import JobSubmission, Key
from gantree.formats import Submission, read_submission, read_submission_objects
from gantree.formats.job.form import EnvName
from gantree.model.arrays import in_words
from gantree.model.errors import BadFields, Problem, Unsupported
from gantree.model.federation import ONE_REGION, Assignment
from gantree.model.phases import ENDED, HOLDING, Phase
from gantree.text.words import NAME_PATTERN

Json = dict[str, Any]
MOST_JOBS = 1000
"""Jobs of one request, and of one page."""
ROWS_AT_ONCE = 500
"""Default limit of a list, which can be encoded without a delay for other requests."""
SHORT_BYTES = 8192
"""Jobs of a request up to so long are read at once; of a longer one on another thread, while others are answered."""
_KEY = re.compile(r"[!-~]{1,128}")


class AssignmentBody(Body):
    """The choice of this cluster for a job of a federation, and the lease of the cluster under which it was made."""

    federation: str = Field(pattern=f"^{NAME_PATTERN}$")
    job: str = Field(pattern=f"^{NAME_PATTERN}$")
    number: int = Field(strict=True, ge=1)
    lease: int = Field(strict=True, ge=1)


class SubmissionRequest(Body):
    """Jobs to hand in: `text` is a job file (YAML, several documents are several jobs), `jobs` are objects with its
    fields; one of the two. The rest says where relative paths start, which fields to replace, and who hands it in.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": EXAMPLE_JOB_FILE}, {"jobs": [EXAMPLE_JOB]}]},
    )
    text: str | None = None
    jobs: list[dict[str, JsonValue]] | None = Field(None, min_length=1, max_length=MOST_JOBS)
    source: str = Field("job.yaml", max_length=4096, description="Its name in messages.")
    base_dir: str | None = Field(None, max_length=4096)
    overrides: dict[str, str | int] = Field({})
    env: dict[EnvName, str] = Field({}, description="Variables that override those of every role.")
    default_env: dict[EnvName, str] = Field(
        {}, description="Variables that yield to those of a role; roles with an image lack them."
    )
    user: str = Field(
        "", description="Whose the jobs are where they do not say; else the caller's."
    )
    login: Login = ""
    assignment: AssignmentBody | None = Field(
        None, description="Of the front of a federation alone: by which it hands in these jobs."
    )

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.text is None) == (self.jobs is None):
            raise ValueError("either text or jobs")
        return self


class ScaleRequest(Body):
    """How many members a gang is to have."""

    members: int = Field(strict=True, ge=1, le=1_000_000, examples=[4])


class ExtendRequest(Body):
    """How long a job is not reclaimed as idle, from now on."""

    for_s: float = Field(
        strict=True, ge=0.0, le=3.2e9, description="Seconds; 0 ends the lease.", examples=[7200.0]
    )


class PriorityRequest(Body):
    """A class of the policy, or a number."""

    priority: str | Annotated[int, Field(strict=True, ge=-(10**9), le=10**9)] = Field(
        examples=["production"]
    )


IdempotencyKey = Annotated[
    str | None,
    Header(
        description="1 to 128 printable characters of the caller's own. The same submission again with the same key"
        " takes nothing, and answers as the first time; another one is 409.",
        examples=["7c3f0f6e-train-42"],
    ),
]


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/jobs", tags=["jobs"])
    _add_submission(routes, backend)
    _add_check(routes, backend)
    _add_forecast(routes, backend)
    _add_commands(routes, backend)
    _add_changes(routes, backend)
    _add_list(routes, backend)
    _add_get(routes, backend)
    return routes


def reads(backend: QueryBackend) -> APIRouter:
    """The routes that only look."""
    routes = APIRouter(prefix="/v1/jobs", tags=["jobs"])
    _add_list(routes, backend)
    _add_get(routes, backend)
    return routes


def _add_submission(routes: APIRouter, backend: Backend) -> None:
    group_commit = GroupCommit(backend.loop, backend.controller)

    @routes.post(
        "",
        **documented(ReceiptResponse, "All jobs are taken, and durable.", 201),
        **needs(Need.SUBMIT),
    )
    async def submit(
        body: SubmissionRequest,
        caller: CurrentCaller,
        request: Request,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        """Hand in jobs and services: all of them are taken, or none. A service that is live is updated."""
        key = _key(idempotency_key, caller, body)
        submission = await _submission_of(body, caller, request, key)
        receipt = await _federated(backend, submission)
        if receipt is None:
            receipt = await group_commit.submit(submission)
        taken = (*(each.job for each in receipt.jobs), *receipt.services)
        note_what(request.scope, "jobs " + ", ".join(taken))
        return json_response(_receipt_json(receipt), 201)


async def _federated(backend: Backend, submission: JobSubmission) -> Receipt | None:
    """The receipt of a job of a federation that the cluster keeps itself; None where the ledger is to have it."""
    if submission.assignment is None:
        return None
    made = await backend.call_controller(lambda controller: controller.federated_job(submission))
    if made is None:
        return None
    name = await asyncio.wrap_future(made)
    if submission.services:
        return Receipt((), (), (name,))
    return Receipt((Submitted(name, submission.assignment.job),), ())


async def _submission_of(
    body: SubmissionRequest, caller: Caller, request: Request, key: Key | None = None
) -> JobSubmission:
    """What a caller hands in, as far as it may. Raises BadFields for what is no job, and Forbidden."""
    if body.assignment is not None:
        check_need(caller, Need.OPERATE)  # on Kubernetes it makes objects by the rights of gantree
    read = await _read(body, is_short=_bytes_of(request) <= SHORT_BYTES)
    if body.assignment is None and any(each != ONE_REGION for each in read.regions):
        raise Unsupported(
            "regions: a cluster is in one; submit the service to the front of a federation"
        )
    jobs = (*read.jobs, *(each.replica for each in read.services))
    user = check_submission(caller, jobs, body.overrides, body.user, body.login)
    access: Access = request.app.state.access
    for owner, queue in {(job.user or user, queue_of(job, body.overrides)) for job in jobs}:
        access.check_hands_in_for(caller, owner, queue)
    assignment = None if body.assignment is None else Assignment(**body.assignment.model_dump())
    return JobSubmission(
        read.jobs, body.base_dir, body.overrides, user, body.source, key, job_visibility(caller), body.env,
        body.default_env, assignment, read.services, partial(changes_service, caller),
    )  # fmt: skip


def _bytes_of(request: Request) -> float:
    """How long the body says that it is; one that does not is long."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isascii() and stated.isdigit() else math.inf


async def _read(body: SubmissionRequest, *, is_short: bool) -> Submission:
    read = partial(_asked_in, body)
    return read() if is_short else await asyncio.to_thread(read)


def _asked_in(body: SubmissionRequest) -> Submission:
    if body.jobs is not None:
        return read_submission_objects(body.jobs, "request")
    assert body.text is not None  # `SubmissionRequest` saw to it
    return read_submission(body.text, body.source)


def _add_check(routes: APIRouter, backend: Backend) -> None:
    @routes.post(
        "/check",
        **documented(ReceiptResponse, "It would be taken, under these ids as of now."),
        **needs(Need.SUBMIT),
    )
    async def check(body: SubmissionRequest, caller: CurrentCaller, request: Request) -> Response:
        """Say what handing in these jobs would come to: the errors, else ids and warnings. Nothing is taken."""
        submission = await _submission_of(body, caller, request)
        receipt = await backend.call_controller(lambda controller: controller.check(submission))
        return json_response(_receipt_json(receipt))


def _add_forecast(routes: APIRouter, backend: Backend) -> None:
    @routes.post(
        "/forecast",
        **documented(ForecastResponse, "What the scheduler would decide about it now."),
        **needs(Need.SUBMIT),
    )
    async def forecast(
        body: SubmissionRequest, caller: CurrentCaller, request: Request
    ) -> Response:
        """Say when and where the first of these jobs would start if it were submitted now. Nothing is taken."""
        submission = await _submission_of(body, caller, request)
        event = await backend.call_controller(lambda controller: controller.first_event(submission))
        told = await backend.read_forked(queries.forecast_of, caller, event, asker=caller.name)
        return json_response(told)


def _receipt_json(receipt: Receipt) -> Json:
    jobs = [
        {"job": each.job, "name": each.name, "array": in_words(each.array) if each.array else None}
        for each in receipt.jobs
    ]
    services = [{"service": each} for each in receipt.services]
    return {"jobs": jobs, "services": services, "warnings": list(receipt.warnings)}


def _key(text: str | None, caller: Caller, body: SubmissionRequest) -> Key | None:
    """Raises BadFields for what is no key."""
    if text is None:
        return None
    if _KEY.fullmatch(text) is None:
        allowed = "1 to 128 printable characters, no spaces"
        raise BadFields([Problem("request", None, "Idempotency-Key", repr(text)[:100], allowed)])
    return Key(caller.name, text, sha256(body.model_dump_json().encode()).hexdigest())


async def _command(
    backend: Backend,
    caller: Caller,
    word: str,
    if_match: str | None,
    command: Callable[[JobCommands, str], str],
) -> Response:
    """Give a command for a job that the caller may change, and let the engine decide about it."""

    def given(controller: Controller) -> str:
        job = job_for(controller, caller, word, Need.CHANGE)
        if if_match is not None:
            check_version(if_match, queries.detail(controller, caller, job), word)
        return command(controller.jobs, job)

    job = await backend.call_controller(given)
    await backend.loop.advance(backend.controller)
    return json_response({"job": job}, 202)


def _add_commands(routes: APIRouter, backend: Backend) -> None:
    asked_for = documented(JobCommandResponse, "It was asked for.", 202)
    without_fields = {**asked_for, **needs(Need.CHANGE), "dependencies": WITHOUT_FIELDS}
    command = partial(_command, backend)

    @routes.post("/{word}/cancel", **without_fields)
    async def cancel(word: str, caller: CurrentCaller, if_match: IfMatch = None) -> Response:
        """Cancel a job, whether it waits or runs. 409 if it has ended."""
        return await command(caller, word, if_match, JobCommands.cancel)

    @routes.post("/{word}/hold", **without_fields)
    async def hold(word: str, caller: CurrentCaller, if_match: IfMatch = None) -> Response:
        """Keep a job from being started until it is released. 409 if it does not wait."""
        return await command(caller, word, if_match, JobCommands.hold)

    @routes.post("/{word}/release", **without_fields)
    async def release(word: str, caller: CurrentCaller, if_match: IfMatch = None) -> Response:
        """Let a held job go. 409 if it is not held."""
        return await command(caller, word, if_match, JobCommands.release)

    @routes.post("/{word}/suspend", **without_fields)
    async def suspend(word: str, caller: CurrentCaller, if_match: IfMatch = None) -> Response:
        """Stop a job, which saves if it can, and keep it from starting until it is resumed. One that waits is held."""
        return await command(caller, word, if_match, JobCommands.suspend)

    @routes.post("/{word}/resume", **without_fields)
    async def resume(word: str, caller: CurrentCaller, if_match: IfMatch = None) -> Response:
        """Let a suspended job go on: another word for release. 409 if it is not held."""
        return await command(caller, word, if_match, JobCommands.release)


def _add_changes(routes: APIRouter, backend: Backend) -> None:
    asked_for = documented(JobCommandResponse, "It was asked for.", 202)
    command = partial(_command, backend)

    @routes.post("/{word}/scale", **asked_for, **needs(Need.CHANGE))
    async def scale(
        word: str,
        body: ScaleRequest,
        caller: CurrentCaller,
        request: Request,
        if_match: IfMatch = None,
    ) -> Response:
        """Give an elastic gang another size. 409 where there is no room for it now."""
        note_what(request.scope, f"word {word} members {body.members}")
        return await command(
            caller, word, if_match, lambda jobs, job: jobs.scale(job, body.members)
        )

    @routes.post("/{word}/extend", **asked_for, **needs(Need.CHANGE))
    async def extend(
        word: str,
        body: ExtendRequest,
        caller: CurrentCaller,
        request: Request,
        if_match: IfMatch = None,
    ) -> Response:
        """Give a job a lease: for so long it is not reclaimed as idle. 422 for longer than its queue allows."""
        note_what(request.scope, f"word {word} for {body.for_s:g} s")
        return await command(caller, word, if_match, lambda jobs, job: jobs.extend(job, body.for_s))

    exempting = {**asked_for, **needs(Need.OPERATE), "dependencies": WITHOUT_FIELDS}

    @routes.post("/{word}/exempt", **exempting)
    async def exempt(word: str, caller: CurrentCaller, if_match: IfMatch = None) -> Response:
        """Have a job never reclaimed as idle, until it is extended again."""
        return await command(caller, word, if_match, JobCommands.exempt)

    @routes.post("/{word}/priority", **asked_for, **needs(Need.CHANGE))
    async def priority(
        word: str,
        body: PriorityRequest,
        caller: CurrentCaller,
        request: Request,
        if_match: IfMatch = None,
    ) -> Response:
        """Give a job another priority: it counts at once, in the order and for who may stop whom."""
        note_what(request.scope, f"word {word} priority {body.priority}")
        return await command(
            caller, word, if_match, lambda jobs, job: jobs.reprioritise(job, body.priority)
        )


def _add_list(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get("", **documented(JobsResponse, "The jobs, or a page of them."), **needs(Need.KNOWN))
    async def jobs(
        stream: CurrentStream,
        phase: Annotated[list[PHASES] | None, Query(description="Any of these.")] = None,
        queue: Annotated[str | None, Query(description="In it, or below it.")] = None,
        user: str | None = None,
        name: str | None = None,
        since: Annotated[float | None, Query(description="Handed in then or later.")] = None,
        by: Annotated[
            Literal["job", "array"],
            Query(description="`array`: jobs of an array that wait and do not differ are one row."),
        ] = "job",
        after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
        limit: Annotated[int | None, Query(ge=1, le=MOST_JOBS, description="None: all.")] = None,
    ) -> Response:
        """The jobs in order of arrival, those that were rejected last."""
        wanted = Filter(frozenset(phase or ()), queue, user, name, since, by == "array")
        first = await _page(backend, stream.caller, wanted, after, limit or ROWS_AT_ONCE)
        if limit is not None or first["next"] is None:
            return json_response(first)
        parts = _all_pages(backend, stream, wanted, first)
        return AuthorizedStreamingResponse(parts, stream, media_type="application/json")


async def _page(
    backend: QueryBackend, caller: Caller, wanted: Filter, after: str | None, limit: int
) -> Json:
    found = await backend.read(queries.jobs, caller, wanted, after, limit)
    await backend.add_progress(found["jobs"])
    return found


async def _all_pages(
    backend: QueryBackend, stream: StreamAuthorization, wanted: Filter, page: Json
) -> AsyncIterator[bytes]:
    """One answer of a page and all after it, written down page by page."""
    yield b'{"jobs":['
    while page["jobs"]:
        yield json_bytes(page["jobs"])[1:-1]
        if page["next"] is None:
            break
        page = await _page(backend, stream.caller, wanted, page["next"], ROWS_AT_ONCE)
        yield b"," if page["jobs"] else b""
    yield b'],"next":null}'


def _add_get(routes: APIRouter, backend: QueryBackend) -> None:
    @routes.get(
        "/{word}", **documented(JobResponse, "The job; its version is the ETag."), **needs(Need.SEE)
    )
    async def job(
        word: str,
        caller: CurrentCaller,
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0,
        until: Literal["ended", "running"] = "ended",
    ) -> Response:
        """One job, by id, or the newest of a name; with wait_s as soon as it has come to what it is waited for."""
        wanted = ENDED if until == "ended" else ENDED | HOLDING - {Phase.STARTING}
        deadline = time.monotonic() + wait_s
        while True:
            ticket = backend.ticket()
            left_s = deadline - time.monotonic()
            any_phase = left_s <= 0 or backend.stopping
            waited_for = None if any_phase else wanted
            detail = await backend.read_inline(queries.job, caller, word, waited_for)
            if detail is not None:
                version = etag_of(detail)
                await backend.add_progress([detail], ended=True)
                return json_response({**detail, "version": version}, version=version)
            await wait_until_set(ticket, left_s)
