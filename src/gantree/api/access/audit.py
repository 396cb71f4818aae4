"""The audit log: changes that were requested and requests that were refused; durable before the answer is sent.

Rows wait for each other while others are being written, and go together, beside the journal's own commits: a thousand
submissions a second are a thousand rows and a few commits. What a row holds names things, and quotes no body and no
secret. Refusals of one who asks again and again are counted in the log (`MOST_REFUSALS_PER_S`), so that nobody
fills the disk by knocking.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantree.api.access.access import Caller, transport_of
from gantree.api.access.rate_limits import RateLimits
from gantree.api.http.security_middleware import send_problem
from gantree.journal.access_store import AccessStore, AuditRow
from gantree.model.errors import GantreeError, JournalError, TooOften

READS = frozenset({"GET", "HEAD", "OPTIONS"})
QUESTIONS = frozenset(
    {"/v1/jobs/check", "/v1/jobs/{word}/what-if", "/v1/policy/what-if", "/v1/routes/reports"}
)
"""Routes that are asked by POST, for what is asked has a body, and change nothing that is on record of themselves."""
REFUSED = frozenset({401, 403, 429})
MOST_ROWS = 1000
"""Rows of one commit."""
MOST_REFUSALS_PER_S = 20.0
LONGEST_WHAT = 400
WHAT = "audited"
"""Where a route notes in the scope's state what it was asked for, if its path does not say so.

One that is asked by GET and notes something changes something: the way back from an OIDC provider opens a session.
"""
HIDDEN = "hidden"

log = logging.getLogger(__name__)

_Waiting = tuple[AuditRow, "asyncio.Future[None]"]


class Audit:
    """Writes rows in groups. For one event loop; the database is written on a thread of its own."""

    def __init__(self, book: AccessStore) -> None:
        self._book = book
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "audit")
        self._refusals = RateLimits(MOST_REFUSALS_PER_S)

    async def note(self, row: AuditRow) -> None:
        """Write a row; it is durable when this returns. Raises JournalError."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        await future

    def is_too_often(self, row: AuditRow) -> bool:
        """Whether a refusal is one of so many that the log alone has it."""
        try:
            self._refusals.consume(f"{row.who} {row.door}")
        except TooOften:
            log.warning("refused %s to %s (%s): %d", row.route, row.who, row.door, row.status)
            return True
        return False

    async def read(
        self, since: float | None, user: str | None, after: int, most: int
    ) -> list[AuditRow]:
        """Rows after a seq, oldest first."""
        return await asyncio.to_thread(self._book.audit, since, user, after, most)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            most = min(MOST_ROWS, len(self._waiting))
            group = [self._waiting.popleft() for _ in range(most)]
            rows = [row for row, _ in group]
            try:
                await loop.run_in_executor(self._thread, self._book.note, rows)
            except Exception as error:
                _resolve(group, error)
            else:
                _resolve(group, None)


def _resolve(group: list[_Waiting], error: Exception | None) -> None:
    for _, future in group:
        if future.done():
            continue  # the caller has gone
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def note_what(scope: Any, what: str) -> None:
    """Say in the audit log what a request was about, beside what its path says."""
    scope.setdefault("state", {})[WHAT] = what


def note_hidden(scope: Any) -> None:
    """Say that a request was refused, though its answer does not."""
    scope.setdefault("state", {})[HIDDEN] = True


class AuditMiddleware:
    """The middleware: the head of an answer waits until its row is durable."""

    def __init__(self, app: ASGIApp, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._app, self._audit, self._clock = app, audit, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on what is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(self._audit, scope, send, self._clock)
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            await answer.broke()
            raise


class _Answer:
    """One answer on its way out."""

    def __init__(self, audit: Audit, scope: Scope, send: Send, clock: Callable[[], float]) -> None:
        self._audit, self._scope, self._send, self._clock = audit, scope, send, clock
        self._is_begun = self._is_lost = False

    async def send(self, message: Message) -> None:
        """Pass a part on, the head once it is on record; an error in its place where that cannot be."""
        if self._is_lost:
            return
        if message["type"] == "http.response.start":
            self._is_begun = True
            error = await self._write_row(int(message["status"]))
            if error is not None:
                self._is_lost = True
                await send_problem(self._send, error)
                return
        await self._send(message)

    async def broke(self) -> None:
        """There is a bug; what was asked for may be done all the same."""
        if not self._is_begun:
            await self._write_row(500)

    async def _write_row(self, status: int) -> GantreeError | None:
        refused = status in REFUSED or HIDDEN in self._scope.get("state", {})
        pattern = getattr(self._scope.get("route"), "path", "")
        is_read = self._scope["method"] in READS or pattern in QUESTIONS
        if is_read and not refused and WHAT not in self._scope.get("state", {}):
            return None
        row = row_of(self._scope, status, self._clock())
        if refused and self._audit.is_too_often(row):
            return None
        try:
            await self._audit.note(row)
        except JournalError as error:
            log.error("no row of the audit log was written: %s", error)
            done = "was not done, and" if 400 <= status != 500 else "may be done, but"
            return JournalError(f"it {done} could not be put on record: {error}")
        return None


def row_of(scope: Scope, status: int, at: float) -> AuditRow:
    """The row of a request that was answered with a status."""
    state = scope.get("state", {})
    caller: Caller | None = state.get("caller")
    pattern = getattr(scope.get("route"), "path", "(unknown)")
    what = state.get(WHAT) or ", ".join(
        f"{name} {value}" for name, value in scope.get("path_params", {}).items()
    )
    return AuditRow(
        at=at,
        who="" if caller is None else caller.name,
        door=_origin(scope, caller),
        route=f"{scope['method']:.10} {pattern}",
        what=printable(what),
        status=status,
        request_id=state.get("request_id", ""),
    )


def _origin(scope: Scope, caller: Caller | None) -> str:
    """Where it came in, and by what it was known: "socket uid 1000", "tcp 10.0.0.7 token 3f2a"."""
    door = transport_of(scope)
    client = scope.get("client")
    at = f"tcp {client[0]}" if door.via == "tcp" and client else door.via
    return f"{at} {caller.credential}" if caller is not None and caller.credential else at


def printable(text: str) -> str:
    """A text as one line of what people can read, that every database takes."""
    short = text if len(text) <= LONGEST_WHAT else text[: LONGEST_WHAT - 3] + "..."
    return "".join(char if char.isprintable() else "?" for char in short)
