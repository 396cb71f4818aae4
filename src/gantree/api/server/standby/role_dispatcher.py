"""The application that every listener serves while the process lives: the leader's, and before and after the standby's.

When a term ends, requests that the leader has not begun to answer are answered with an error: the engine may wait for a
database that says nothing, and they would wait with it. A client repeats those that only ask at the next daemon.
Answers that have begun (streams) end by themselves.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantree.api.server.error_handlers import problem_answer
from gantree.control.engine.leadership import Term
from gantree.model.errors import JournalError

NOT_ANSWERED = (
    "this daemon stopped leading before it answered; what was asked for may have been done or not"
)


class RoleDispatcher:
    """Passes requests to the application of the current role; from the end of a term on that is the standby's.

    That one is made by its first request: most daemons lead from the start to the end, and would wait for it.
    """

    def __init__(self, standing_by: Callable[[], ASGIApp]) -> None:
        self._standing_by = cache(standing_by)
        self._leading: tuple[Term, ASGIApp] | None = None
        self._unanswered: set[asyncio.Task[Any]] = set()

    def lead(self, term: Term, application: ASGIApp) -> None:
        """Let application answer for as long as the term lasts."""
        self._leading = (term, application)

    def stand_by(self) -> None:
        """Let the standby's application answer, and end what the leader's has not begun to answer."""
        self._leading = None
        for request in self._unanswered:
            request.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        leading = self._leading
        if leading is not None and leading[0].is_on:
            await self._lead_request(leading[1], scope, receive, send)
        else:
            await self._standing_by()(scope, receive, send)

    async def _lead_request(
        self, application: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        request = asyncio.current_task()
        assert request is not None, "a server calls an application from a task"

        async def begin_or_go_on(message: Message) -> None:
            self._unanswered.discard(request)
            await send(message)

        self._unanswered.add(request)
        try:
            await application(scope, receive, begin_or_go_on)
        except asyncio.CancelledError:
            if self._leading is not None or request not in self._unanswered:
                raise
            request.uncancel()
            await _not_answered(scope, receive, send)
        finally:
            self._unanswered.discard(request)


async def _not_answered(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        answer = problem_answer(Request(scope), JournalError(NOT_ANSWERED))
        await answer(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1012, "reason": "not leading any more"})
