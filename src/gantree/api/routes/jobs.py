"""Routes of jobs: hand in, list, look at, wait for, cancel, hold, release. Questions about them are in `questions`."""

import asyncio
import re
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from gantree.api import views
from gantree.api.access import Caller, WhoAsks
from gantree.api.answers import IfMatch, answer, check_version, tells, version_of
from gantree.api.backend import Backend
from gantree.api.job_list import Filter, page_of
from gantree.api.models import (
    EXAMPLE_JOB,
    EXAMPLE_JOB_FILE,
    PHASES,
    JobsTold,
    JobTold,
    JobWished,
    ReceiptTold,
)
from gantree.api.progress_view import add_progress
from gantree.api.requests import LONGEST_WAIT_S
from gantree.control.controller import Controller
from gantree.control.gathering import Gathering
from gantree.control.loop import wait_until_set
from gantree.control.submissions import HandIn, Key
from gantree.formats import read_job, read_job_objects
from gantree.model.errors import BadFields, Problem
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, HOLDING, Phase

Json = dict[str, Any]
MOST_JOBS = 1000
"""Jobs of one request, and of one page."""
SHORT_TEXT = 4096
"""A job file up to so long is read at once; a longer one on another thread, while others are answered."""
_KEY = re.compile(r"[!-~]{1,128}")


class Submission(BaseModel):
    """Jobs to hand in: `text` is a job file (YAML, several documents are several jobs), `jobs` are objects with its
    fields; one of the two. The rest says where relative paths start, which fields to replace, and who hands it in.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"text": EXAMPLE_JOB_FILE}, {"jobs": [EXAMPLE_JOB]}]},
    )
    text: str | None = None
    jobs: list[dict[str, JsonValue]] | None = Field(None, min_length=1, max_length=MOST_JOBS)
    source: str = Field("job.yaml", max_length=4096, description="Its name in messages.")
    base_dir: str | None = Field(None, max_length=4096)
    overrides: dict[str, str | int] = {}
    user: str = Field("", description="Whose the jobs are where they do not say.")

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.text is None) == (self.jobs is None):
            raise ValueError("either text or jobs")
        return self


class Scaling(BaseModel):
    """How many members a gang is to have."""

    model_config = ConfigDict(extra="forbid")
    members: int = Field(ge=1, le=1_000_000, examples=[4])


class Priority(BaseModel):
    """A class of the policy, or a number."""

    model_config = ConfigDict(extra="forbid")
    priority: str | Annotated[int, Field(ge=-(10**9), le=10**9)] = Field(examples=["production"])


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
    _add_wishes(routes, backend)
    _add_list(routes, backend)
    _add_look(routes, backend)
    return routes


def _add_submission(routes: APIRouter, backend: Backend) -> None:
    gathering = Gathering(backend.loop, backend.controller)

    @routes.post("", **tells(ReceiptTold, "All jobs are taken, and durable.", 201))
    async def submit(
        body: Submission, caller: WhoAsks, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Hand in jobs: all of them are taken, or none."""
        key = _key(idempotency_key, caller, body)
        handed = HandIn(
            await _read(body), body.base_dir, body.overrides, body.user, body.source, key
        )
        receipt = await gathering.submit(handed)
        jobs = [{"job": each.job, "name": each.name} for each in receipt.jobs]
        return answer({"jobs": jobs, "warnings": list(receipt.warnings)}, 201)


async def _read(body: Submission) -> tuple[Job, ...]:
    if body.jobs is not None:
        return read_job_objects(body.jobs, "request")
    assert body.text is not None  # `Submission` saw to it
    if len(body.text) <= SHORT_TEXT:
        return read_job(body.text, body.source)
    return await asyncio.to_thread(read_job, body.text, body.source)


def _key(text: str | None, caller: Caller, body: Submission) -> Key | None:
    """Raises BadFields for what is no key."""
    if text is None:
        return None
    if _KEY.fullmatch(text) is None:
        allowed = "1 to 128 printable characters, no spaces"
        raise BadFields([Problem("request", None, "Idempotency-Key", repr(text)[:100], allowed)])
    return Key(caller.name, text, sha256(body.model_dump_json().encode()).hexdigest())


def _add_wishes(routes: APIRouter, backend: Backend) -> None:
    async def wish(word: str, if_match: str | None, ask: Callable[[Controller], str]) -> Response:
        def asked(controller: Controller) -> str:
            check_version(if_match, _detail(controller, word), word)
            return ask(controller)

        job = await backend.ask(asked)
        await backend.loop.advance(backend.controller)
        return answer({"job": job}, 202)

    @routes.post("/{word}/cancel", **tells(JobWished, "It was asked for.", 202))
    async def cancel(word: str, if_match: IfMatch = None) -> Response:
        """Cancel a job, whether it waits or runs. 409 if it has ended."""
        return await wish(word, if_match, lambda controller: controller.cancel(word))

    @routes.post("/{word}/hold", **tells(JobWished, "It was asked for.", 202))
    async def hold(word: str, if_match: IfMatch = None) -> Response:
        """Keep a job from being started until it is released. 409 if it does not wait."""
        return await wish(word, if_match, lambda controller: controller.hold(word))

    @routes.post("/{word}/release", **tells(JobWished, "It was asked for.", 202))
    async def release(word: str, if_match: IfMatch = None) -> Response:
        """Let a held job go. 409 if it is not held."""
        return await wish(word, if_match, lambda controller: controller.release(word))

    @routes.post("/{word}/suspend", **tells(JobWished, "It was asked for.", 202))
    async def suspend(word: str, if_match: IfMatch = None) -> Response:
        """Stop a job, which saves if it can, and keep it from starting until it is resumed. One that waits is held."""
        return await wish(word, if_match, lambda controller: controller.suspend(word))

    @routes.post("/{word}/resume", **tells(JobWished, "It was asked for.", 202))
    async def resume(word: str, if_match: IfMatch = None) -> Response:
        """Let a suspended job go on: another word for release. 409 if it is not held."""
        return await wish(word, if_match, lambda controller: controller.release(word))

    @routes.post("/{word}/scale", **tells(JobWished, "It was asked for.", 202))
    async def scale(word: str, body: Scaling, if_match: IfMatch = None) -> Response:
        """Give an elastic gang another size. 409 where there is no room for it now."""
        return await wish(word, if_match, lambda controller: controller.scale(word, body.members))

    @routes.post("/{word}/priority", **tells(JobWished, "It was asked for.", 202))
    async def priority(word: str, body: Priority, if_match: IfMatch = None) -> Response:
        """Give a job another priority: it counts at once, in the order and for who may stop whom."""
        return await wish(
            word, if_match, lambda controller: controller.reprioritise(word, body.priority)
        )


def _add_list(routes: APIRouter, backend: Backend) -> None:
    @routes.get("", **tells(JobsTold, "The jobs, or a page of them."))
    async def jobs(
        phase: Annotated[list[PHASES] | None, Query(description="Any of these.")] = None,
        queue: Annotated[str | None, Query(description="In it, or below it.")] = None,
        user: str | None = None,
        name: str | None = None,
        since: Annotated[float | None, Query(description="Handed in then or later.")] = None,
        after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
        limit: Annotated[int | None, Query(ge=1, le=MOST_JOBS, description="None: all.")] = None,
    ) -> Response:
        """The jobs in order of arrival, those that were rejected last."""
        wanted = Filter(frozenset(phase or ()), queue, user, name, since)
        found = await backend.ask(
            lambda controller: page_of(controller.ledger, wanted, after, limit)
        )
        await asyncio.to_thread(add_progress, found["jobs"], backend.controller.cluster)
        return answer(found)


def _add_look(routes: APIRouter, backend: Backend) -> None:
    @routes.get("/{word}", **tells(JobTold, "The job; its version is the ETag."))
    async def job(
        word: str,
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0,
        until: Literal["ended", "running"] = "ended",
    ) -> Response:
        """One job, by id, or the newest of a name; with wait_s as soon as it has come to what it is waited for."""
        wanted = ENDED if until == "ended" else ENDED | HOLDING - {Phase.STARTING}
        deadline = time.monotonic() + wait_s
        while True:
            ticket = backend.loop.changes.ticket()
            detail = await backend.ask(lambda controller: _detail(controller, word))
            left_s = deadline - time.monotonic()
            if detail["phase"] in wanted or left_s <= 0 or backend.loop.stopping:
                version = version_of(detail)
                await asyncio.to_thread(
                    add_progress, [detail], backend.controller.cluster, ended=True
                )
                return answer({**detail, "version": version}, version=version)
            await wait_until_set(ticket, left_s)


def _detail(controller: Controller, word: str) -> Json:
    return views.job_detail(controller.ledger, controller.resolve(word))
