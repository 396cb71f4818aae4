"""Reads that a daemon answers while another leads: of what its own reader has read of the journal they share.

The reader looks at the journal before each; where that cannot be reached it answers from what it knows. So every answer
says how old it is: `Gantree-Fact` is the newest fact that it knows of, `Age` the seconds since it last
looked.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from fastapi import APIRouter
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantree.api.progress_view import add_progress
from gantree.api.routes import jobs, nodes, policies, questions
from gantree.control.reader_frames import NEWEST, Told
from gantree.control.readers import Readers
from gantree.control.reading import Moment, Reading
from gantree.executors.progress import Progress, progress_in
from gantree.executors.rundir import RunDirectory

Json = dict[str, Any]
T = TypeVar("T")
Given = TypeVarTuple("Given")

_answered: ContextVar[Told | None] = ContextVar("answered", default=None)


@dataclass(frozen=True, slots=True)
class Standing:
    """Reads without a controller. state_dir is the one that all daemons of a journal share."""

    readers: Readers
    state_dir: Path

    async def read(self, function: Callable[[Reading, *Given], T], *arguments: *Given) -> T:
        """What a function says of what is known here."""
        return await self._read(function, arguments, apart=False)

    async def work_out(self, function: Callable[[Reading, *Given], T], *arguments: *Given) -> T:
        """The same of what may take seconds."""
        return await self._read(function, arguments, apart=True)

    async def add_progress(self, rows: Sequence[Json]) -> None:
        """Put into rows of jobs how far they say that they are."""
        await asyncio.to_thread(add_progress, rows, self)

    def progress(self, job: str, attempt: int) -> Progress | None:
        """How far an attempt says that it is."""
        return progress_in(RunDirectory(self.state_dir / "runs", job, attempt).progress)

    async def _read(
        self, function: Callable[..., T], arguments: tuple[object, ...], *, apart: bool
    ) -> T:
        told = await self.readers.ask(
            Moment(NEWEST, time.time()), function, *arguments, apart=apart
        )
        _answered.set(told)
        value: T = told.value
        return value


def routers(standing: Standing) -> list[APIRouter]:
    """The routes that are answered."""
    return [each.reads(standing) for each in (jobs, questions, nodes, policies)]


class SaysItsAge:
    """Adds to each answer of a reader how old it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        _answered.set(None)

        async def send_with_age(message: Message) -> None:
            told = _answered.get()
            if message["type"] == "http.response.start" and told is not None:
                headers = MutableHeaders(scope=message)
                headers["Gantree-Fact"] = str(told.at.seq)
                headers["Age"] = str(int(told.age_s))
            await send(message)

        await self._app(scope, receive, send_with_age)
