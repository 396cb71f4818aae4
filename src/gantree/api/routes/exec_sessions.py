"""The route of attaching: a WebSocket to a shell, a command or a port beside a running rank.

Its first message is a text, the JSON of `Wish`; then come messages as `guest_relay` carries them. WebSockets do not
pass the dependencies and the error handlers of other routes, so what those do is done here: who asks, from which origin
and how often (`caller_of`), the caller's right to the job, errors as problems, a row in the audit log.
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
from gantree.api.streams.exec_relay import GONE, IDLE_S, Quiet, call_of, relay_guest, relay_port
from gantree.api.streams.streaming import Lasting, LetGo
from gantree.control.engine.controller import Controller
from gantree.core.ledger.state import JobState
from gantree.executors.guests import Terminal
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


class Size(BaseModel):
    """A terminal."""

    model_config = ConfigDict(extra="forbid")
    term: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]{1,64}$")] = "xterm"
    rows: Annotated[int, Field(ge=1, le=10_000)]
    columns: Annotated[int, Field(ge=1, le=10_000)]


class Wish(BaseModel):
    """What is wished: a port, else a command (none: a shell), on a terminal or on pipes."""

    model_config = ConfigDict(extra="forbid")
    rank: Annotated[int, Field(ge=0, le=10**9)] = 0
    command: Annotated[list[Word], Field(max_length=4096)] = []
    terminal: Size | None = None
    port: Annotated[int | None, Field(ge=1, le=65535)] = None

    @property
    def in_words(self) -> str:
        """For people who look after the site; arguments may be secret, so only the program is named."""
        if self.port is not None:
            return f"port {self.port} of rank {self.rank}"
        return f"{self.command[0][:100] if self.command else 'a shell'} beside rank {self.rank}"


@dataclass(slots=True)
class Seats:
    """How many are attached, and how many of each caller."""

    taken: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def taken_by(self, caller: str) -> Iterator[None]:
        """One more for as long as the block lasts. Raises TooOften."""
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
    """The route of this module. Whoever says nothing for idle_s is let go."""
    routes = APIRouter()
    seats = Seats()

    @routes.websocket("/v1/jobs/{word}/attach")
    async def attach(websocket: WebSocket, word: str) -> None:
        try:
            caller = await caller_of(websocket)
            check_need(caller, Need.CHANGE)
            await backend.ask(lambda asked: job_for(asked, caller, word, Need.CHANGE))
            with seats.taken_by(caller.name):
                await _attached(websocket, backend, Lasting(websocket, caller), word, idle_s)
        except GantreeError as error:
            await _deny(websocket, error)

    return routes


async def _deny(websocket: WebSocket, error: GantreeError) -> None:
    """Refuse before there is a WebSocket, as any route would."""
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


async def _attached(
    websocket: WebSocket, backend: Backend, held_by: Lasting, word: str, idle_s: float
) -> None:
    """Take a wish and fulfil it to its end; what goes wrong from now on is said by the code of the close."""
    await websocket.accept()
    began = time.monotonic()
    caller, job, code, reason = held_by.caller, word, ENDED, ""
    access: Access = websocket.app.state.access
    try:
        wish = await _wish(websocket)
        job, attempt = await backend.ask(lambda asked: _running(asked, access, caller, word))
        await _audited(websocket, 101, f"{job}: {wish.in_words}")
        log.info(
            "%s attached to job %s: %s", caller.name, job, wish.in_words,
            extra={"job": job, "attempt": attempt, "caller": caller.name},
        )  # fmt: skip
        held_by.only_if(lambda now: backend.ask(lambda asked: _whose(asked, access, now, job)))
        relayed = _relayed(websocket, backend, job, attempt, wish, Quiet(idle_s))
        reason = await held_by.during(relayed)
        code = ENDED if reason in ("", GONE) else WENT_WRONG
    except WebSocketDisconnect:
        reason = GONE
    except GantreeError as error:
        code, reason = REFUSED, f"{type(error).__name__}: {error}"
    except LetGo as error:
        code, reason = REFUSED, f"Forbidden: {error}"
    except OSError as error:
        code, reason = REFUSED, f"Conflict: {error.strerror or error}"
    told = {"job": job, "caller": caller.name, "took_s": round(time.monotonic() - began, 3)}
    log.info("%s left job %s: %s", caller.name, job, reason or "it ended", extra=told)
    if reason != GONE:
        await _close(websocket, code, reason)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    short = reason.encode()[:LONGEST_REASON].decode(errors="ignore")
    with suppress(RuntimeError, WebSocketDisconnect):  # it was closed from the other side meanwhile
        await websocket.close(code, short)


async def _wish(websocket: WebSocket) -> Wish:
    """The first message. Raises BadInput, and WebSocketDisconnect where nothing comes."""
    try:
        async with asyncio.timeout(WISHED_WITHIN_S):
            message = await websocket.receive()
    except TimeoutError:
        raise BadInput("nothing was wished in time") from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    try:
        wish = Wish.model_validate_json(message.get("text") or "")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the wish"
        raise BadInput(f"{where}: {first['msg']}") from None
    if any("\0" in word for word in wish.command) or (wish.command and not wish.command[0]):
        raise BadInput("command: it names no program, or holds a NUL")
    return wish


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
        raise Conflict(f"{job} {what}: only what runs can be attached to")
    return job, state.attempt


async def _relayed(
    websocket: WebSocket, backend: Backend, job: str, attempt: int, wish: Wish, quiet: Quiet
) -> str:
    cluster = backend.controller.cluster
    if wish.port is not None:
        address = await asyncio.to_thread(cluster.port, job, attempt, wish.rank, wish.port)
        return await relay_port(websocket, address, quiet)
    size = wish.terminal
    terminal = None if size is None else Terminal(size.term, size.rows, size.columns)
    awaited = await asyncio.to_thread(
        cluster.guest, job, attempt, wish.rank, wish.command, terminal
    )
    return await relay_guest(websocket, await call_of(awaited), quiet)
