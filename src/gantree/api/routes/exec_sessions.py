"""The route of exec sessions: a WebSocket to a shell, a command or a port beside a running rank.

The first message is text, the JSON of `ExecRequest`; all others are carried by `exec_relay`. FastAPI's dependencies and
error handlers do not apply to WebSockets, so this module does what they do: it identifies the caller, checks origin and
rate limit (`caller_of`) and the caller's right to the job, answers errors as problems, and writes the audit log.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from gantree.api.access.access import Access, Caller, caller_of
from gantree.api.access.audit import row_of
from gantree.api.access.permissions import Need, check_need, job_for
from gantree.api.backend import Backend
from gantree.api.http.problems import MEDIA_TYPE, problem_of
from gantree.api.streams.exec_relay import (
    GONE,
    IDLE_S,
    IdleTimer,
    connection_of,
    relay_command,
    relay_port,
)
from gantree.api.streams.streaming import StreamAuthorization, StreamRevoked
from gantree.control.engine.controller import Controller
from gantree.core.ledger.state import JobState
from gantree.executors.exec_session import Terminal
from gantree.model.errors import BadInput, Conflict, GantreeError, TooOften
from gantree.model.phases import Phase

MOST_OF_A_CALLER = 32
"""At once; each connection to a port is one."""
MOST_OF_ALL = 256
WISHED_WITHIN_S = 10.0
ATTACHABLE = frozenset({Phase.RUNNING, Phase.SAVING})
REFUSED, WENT_WRONG, ENDED = 4000, 4001, 1000
"""Codes at the close of a WebSocket; its reason says more. 4000 carries the kind of the error before its sentence."""
LONGEST_REASON = 120
Word = Annotated[str, Field(max_length=32 * 1024)]

log = logging.getLogger(__name__)


class TerminalSize(BaseModel):
    """The terminal of the caller."""

    model_config = ConfigDict(extra="forbid")
    term: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]{1,64}$")] = "xterm"
    rows: Annotated[int, Field(ge=1, le=10_000)]
    columns: Annotated[int, Field(ge=1, le=10_000)]


class ExecRequest(BaseModel):
    """What to open: a port, else a command (none: a shell), on a terminal or on pipes."""

    model_config = ConfigDict(extra="forbid")
    rank: Annotated[int, Field(ge=0, le=10**9)] = 0
    command: Annotated[list[Word], Field(max_length=4096)] = []
    terminal: TerminalSize | None = None
    port: Annotated[int | None, Field(ge=1, le=65535)] = None

    @property
    def in_words(self) -> str:
        """For people who look after the site; arguments may be secret, so only the program is named."""
        if self.port is not None:
            return f"port {self.port} of rank {self.rank}"
        return f"{self.command[0][:100] if self.command else 'a shell'} beside rank {self.rank}"


@dataclass(slots=True)
class SessionLimit:
    """How many sessions are open, in all and for each caller."""

    taken: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def taken_by(self, caller: str) -> Iterator[None]:
        """Count one more session while the block runs. Raises TooOften."""
        if self.taken[caller] >= MOST_OF_A_CALLER or self.taken.total() >= MOST_OF_ALL:
            of_caller = f"{caller} has {self.taken[caller]}"
            whose = of_caller if self.taken[caller] >= MOST_OF_A_CALLER else "all have too many"
            raise TooOften(f"{whose} open; close some first")
        self.taken[caller] += 1
        try:
            yield
        finally:
            self.taken[caller] -= 1
            self.taken += Counter()  # forgets whoever has none


def router(backend: Backend, idle_s: float = IDLE_S) -> APIRouter:
    """The route. A session without traffic for idle_s is closed."""
    routes = APIRouter()
    seats = SessionLimit()

    @routes.websocket("/v1/jobs/{word}/attach")
    async def attach(websocket: WebSocket, word: str) -> None:
        try:
            caller = await caller_of(websocket)
            check_need(caller, Need.CHANGE)
            await backend.call_controller(lambda asked: job_for(asked, caller, word, Need.CHANGE))
            with seats.taken_by(caller.name):
                await _serve(
                    websocket, backend, StreamAuthorization(websocket, caller), word, idle_s
                )
        except GantreeError as error:
            await _deny(websocket, error)

    return routes


async def _deny(websocket: WebSocket, error: GantreeError) -> None:
    """Refuse before the WebSocket is accepted, as other routes do."""
    status, body = problem_of(error)
    await _audited(websocket, status, "")
    await websocket.send_denial_response(JSONResponse(body, status, media_type=MEDIA_TYPE))


async def _audited(websocket: WebSocket, status: int, what: str) -> None:
    audit = websocket.app.state.audit
    scope: dict[str, Any] = {**websocket.scope, "method": "ATTACH"}
    if what:
        scope["state"] = {**scope.get("state", {}), "audited": what}
    if audit is not None:
        row = row_of(scope, status, time.time())
        if status == 101 or not audit.is_too_often(row):
            await audit.note(row)


async def _serve(
    websocket: WebSocket, backend: Backend, stream: StreamAuthorization, word: str, idle_s: float
) -> None:
    """Serve one session to its end. Errors from here on are reported by the close code."""
    await websocket.accept()
    began = time.monotonic()
    caller, job, code, reason = stream.caller, word, ENDED, ""
    access: Access = websocket.app.state.access
    try:
        request = await _request(websocket)
        job, attempt = await backend.call_controller(
            lambda asked: _running(asked, access, caller, word)
        )
        await _audited(websocket, 101, f"{job}: {request.in_words}")
        log.info(
            "%s attached to job %s: %s", caller.name, job, request.in_words,
            extra={"job": job, "attempt": attempt, "caller": caller.name},
        )  # fmt: skip
        stream.add_check(
            lambda now: backend.call_controller(lambda asked: _whose(asked, access, now, job))
        )
        relayed = _relayed(websocket, backend, job, attempt, request, IdleTimer(idle_s))
        reason = await stream.run(relayed)
        code = ENDED if reason in ("", GONE) else WENT_WRONG
    except WebSocketDisconnect:
        reason = GONE
    except GantreeError as error:
        code, reason = REFUSED, f"{type(error).__name__}: {error}"
    except StreamRevoked as error:
        code, reason = REFUSED, f"Forbidden: {error}"
    except OSError as error:
        code, reason = REFUSED, f"Conflict: {error.strerror or error}"
    fields = {"job": job, "caller": caller.name, "took_s": round(time.monotonic() - began, 3)}
    log.info("%s left job %s: %s", caller.name, job, reason or "it ended", extra=fields)
    if reason != GONE:
        await _close(websocket, code, reason)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    short = reason.encode()[:LONGEST_REASON].decode(errors="ignore")
    with suppress(RuntimeError, WebSocketDisconnect):  # it was closed from the other side meanwhile
        await websocket.close(code, short)


async def _request(websocket: WebSocket) -> ExecRequest:
    """The first message. Raises BadInput, and WebSocketDisconnect where nothing comes."""
    try:
        async with asyncio.timeout(WISHED_WITHIN_S):
            message = await websocket.receive()
    except TimeoutError:
        raise BadInput("no request came in time") from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    try:
        request = ExecRequest.model_validate_json(message.get("text") or "")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the request"
        raise BadInput(f"{where}: {first['msg']}") from None
    if any("\0" in word for word in request.command) or (
        request.command and not request.command[0]
    ):
        raise BadInput("command: it names no program, or holds a NUL")
    return request


def _whose(
    controller: Controller, access: Access, caller: Caller, word: str
) -> tuple[str, JobState | None]:
    """The job in which a caller may run commands. Raises NotFound and Forbidden."""
    job = job_for(controller, caller, word, Need.CHANGE)
    state = controller.ledger.jobs.get(job)
    if state is not None:
        access.check_acts_as(caller, state.spec.user)
    return job, state


def _running(controller: Controller, access: Access, caller: Caller, word: str) -> tuple[str, int]:
    """The job and its attempt. Raises NotFound, Forbidden, and Conflict for one that does not run."""
    job, state = _whose(controller, access, caller, word)
    if state is None or state.phase not in ATTACHABLE:
        what = "was rejected" if state is None else f"is {state.phase}"
        raise Conflict(f"{job} {what}: exec sessions need a running job")
    return job, state.attempt


async def _relayed(
    websocket: WebSocket,
    backend: Backend,
    job: str,
    attempt: int,
    request: ExecRequest,
    quiet: IdleTimer,
) -> str:
    cluster = backend.controller.cluster
    if request.port is not None:
        address = await asyncio.to_thread(cluster.port, job, attempt, request.rank, request.port)
        return await relay_port(websocket, address, quiet)
    size = request.terminal
    terminal = None if size is None else Terminal(size.term, size.rows, size.columns)
    awaited = await asyncio.to_thread(
        cluster.exec_session, job, attempt, request.rank, request.command, terminal
    )
    return await relay_command(websocket, await connection_of(awaited), quiet)
