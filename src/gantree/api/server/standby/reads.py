"""Reads of a standby, from its own copy of the ledger in the shared journal.

The reader catches up with the journal before each query; if the journal cannot be reached it answers from what it has.
So every answer states its age: `Gantree-Fact` is the newest fact in it, `Age` the seconds since the reader caught up.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from fastapi import APIRouter
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantree.api.gpu_metrics.gpu_counters import GpuCounters
from gantree.api.routes import (
    curves,
    events,
    explanations,
    jobs,
    links,
    logs,
    nodes,
    policies,
    records,
    site,
)
from gantree.api.routes.accounting import history, usage, waste
from gantree.api.routes.services import services
from gantree.api.views.progress_view import add_observed, add_progress
from gantree.api.views.straggler_view import StragglerJudge
from gantree.control.readers.frames import NEWEST, QueryMode, Reply
from gantree.control.readers.supervisor import ReaderSupervisor
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.executors.check_status import CheckStatus
from gantree.executors.local.checking.files import check_in
from gantree.executors.local.host_use import host_use_in
from gantree.executors.local.progress_file import curve_in, progress_in
from gantree.executors.local.recording.recorder import record_in
from gantree.executors.local.run_directory import RunDirectory
from gantree.executors.local.step_times_file import step_reports_in
from gantree.executors.progress import Progress, StepReports
from gantree.formats.prices.reader import PricesFile
from gantree.model.errors import NotFound, NotLeading
from gantree.model.host_use import HostUse

LOOK_EVERY_S = 0.5
"""How often a stream checks for changes."""
Json = dict[str, Any]
T = TypeVar("T")
Given = TypeVarTuple("Given")

_answered: ContextVar[Reply | None] = ContextVar("answered", default=None)


@dataclass(frozen=True, slots=True)
class StandbyBackend:
    """Reads without a controller. state_dir is the one that all daemons of a journal share; stop says when to end.

    What is in the inbox and not decided about is in no fact, so only the leader can say that something does not exist;
    a standby answers with not_leading instead.
    """

    readers: ReaderSupervisor
    state_dir: Path
    stop: asyncio.Event
    not_leading: Callable[[], NotLeading]
    gpu_counters: GpuCounters = field(default_factory=GpuCounters)
    straggler_judge: StragglerJudge = field(default_factory=StragglerJudge)
    prices: PricesFile | None = None
    cluster_keeps_services: bool = False

    async def read(self, function: Callable[[ReadView, *Given], T], *arguments: *Given) -> T:
        """What a function says of what is known here."""
        return await self._read(function, arguments, QueryMode.INLINE)

    async def read_adaptive(
        self, function: Callable[[ReadView, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same of what mostly takes milliseconds, and may take seconds."""
        return await self._read(function, arguments, QueryMode.ADAPTIVE, asker)

    async def read_forked(
        self, function: Callable[[ReadView, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same of what may take seconds."""
        return await self._read(function, arguments, QueryMode.FORKED, asker)

    async def read_inline(self, function: Callable[[ReadView, *Given], T], *arguments: *Given) -> T:
        """The same of what takes microseconds."""
        return await self._read(function, arguments, QueryMode.INLINE)

    async def read_services(
        self, function: Callable[[ReadView, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same as read_adaptive. Raises NotLeading where the cluster keeps services itself: no journal has them."""
        if self.cluster_keeps_services:
            raise self.not_leading()
        return await self.read_adaptive(function, *arguments, asker=asker)

    async def is_service_of_cluster(self, word: str) -> bool:
        """It is not known: only the leader has those. So a name that is no job's is for the leader to explain."""
        return False

    def ticket(self) -> asyncio.Event:
        """An event that is set after LOOK_EVERY_S: a standby is not notified of changes."""
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(LOOK_EVERY_S, event.set)
        return event

    @property
    def stopping(self) -> bool:
        """Whether answers that last are to end."""
        return self.stop.is_set()

    async def add_progress(self, rows: Sequence[Json], *, ended: bool = False) -> None:
        """Put into rows of jobs that hold a place how far they are; where ended, also of those that did."""
        await add_progress(rows, self, self.straggler_judge, ended=ended)

    async def add_observed(self, explained: Json) -> None:
        """Put into the answer to why how its check stands, and which ranks are slower than their peers."""
        await add_observed(explained, self, self.straggler_judge)

    async def add_remaining(self, explained: Json) -> None:
        """Nothing: only the leader's executor knows."""

    async def add_load(self, rows: Sequence[Json]) -> None:
        """Nothing: routers report to the leader."""

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Where the output of a rank is, once there is some."""
        return self._run(job, attempt).log(rank)

    def record(self, job: str, attempt: int) -> Json | None:
        """What ran as an attempt, None if it was never started; from any thread. Raises OSError."""
        return record_in(self._run(job, attempt))

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """What an attempt uses of CPUs and memory. Raises OSError for a damaged run directory."""
        return host_use_in(self._run(job, attempt))

    def curve(self, job: str, attempt: int) -> tuple[Progress, ...]:
        """The reports that an attempt keeps."""
        return curve_in(self._run(job, attempt).progress)

    def progress(self, job: str, attempt: int) -> Progress | None:
        """How far an attempt says that it is."""
        return progress_in(self._run(job, attempt).progress)

    def check(self, job: str, attempt: int) -> CheckStatus | None:
        """How the check of an attempt stands. Raises OSError for a damaged run directory."""
        return check_in(self._run(job, attempt))

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        """The own times of steps that the ranks of an attempt report. Raises OSError for a damaged run directory."""
        return step_reports_in(self._run(job, attempt))

    def _run(self, job: str, attempt: int) -> RunDirectory:
        return RunDirectory(self.state_dir / "runs", job, attempt)

    async def _read(
        self,
        function: Callable[..., T],
        arguments: tuple[object, ...],
        mode: QueryMode,
        asker: str = "",
    ) -> T:
        try:
            reply = await self.readers.query(
                ReadPoint(NEWEST, time.time()), function, *arguments, mode=mode, asker=asker
            )
        except NotFound as error:
            raise self.not_leading() from error
        _answered.set(reply)
        value: T = reply.value
        return value


LOOKING = (jobs, explanations, records, curves, nodes, links, policies, site, services)
"""Routes of which some change something."""


def routers(standby: StandbyBackend) -> list[APIRouter]:
    """The routes that are answered."""
    only_looking = [each.reads(standby) for each in LOOKING]
    return [
        *only_looking,
        *(each.router(standby) for each in (logs, events, usage, waste, history)),
    ]


class AgeMiddleware:
    """Adds the age of the reader's state to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        _answered.set(None)

        async def send_with_age(message: Message) -> None:
            reply = _answered.get()
            if message["type"] == "http.response.start" and reply is not None:
                headers = MutableHeaders(scope=message)
                headers["Gantree-Fact"] = str(reply.at.seq)
                headers["Age"] = str(int(reply.age_s))
            await send(message)

        await self._app(scope, receive, send_with_age)
