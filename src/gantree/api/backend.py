"""What the routes work with: the running control loop, the way to ask its controller something, and the reader.

A route that changes something asks the controller, on its thread. One that only looks reads: the reader answers, beside
the turns, at or after everything that anybody can have been told before. `read` is for what takes milliseconds, and is
answered on the controller's thread while there is no reader. `work_out` is for what may take seconds: it is never
answered there, but where the daemon has no reader at all. `find_out` is for what mostly takes milliseconds and may take
seconds: as work_out, only that the reader itself answers for as long as questions of its kind are quick.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple

from gantree.api.gpu_metrics.gpu_counters import GpuCounters
from gantree.api.views.progress_view import add_progress
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.readers.frames import Where
from gantree.control.readers.supervisor import Readers
from gantree.control.requests.read_view import Reading

Json = dict[str, Any]
T = TypeVar("T")
Given = TypeVarTuple("Given")


class Reads(Protocol):
    """What a route works with that only looks: also in a daemon that does not lead (`standing_reads`)."""

    @property
    def gpu_counters(self) -> GpuCounters:
        """How busy GPUs are, as they say themselves."""
        ...

    async def read(self, function: Callable[[Reading, *Given], T], *arguments: *Given) -> T:
        """What a function of a module says of a Reading: plain values, found in milliseconds."""
        ...

    async def find_out(
        self, function: Callable[[Reading, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same of what mostly takes milliseconds, and may take seconds. Raises as work_out."""
        ...

    async def work_out(
        self, function: Callable[[Reading, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same of what may take seconds. Raises TooLong, and Unreachable while there is no reader.

        asker is who waits for it: nobody keeps all others waiting.
        """
        ...

    async def look(self, function: Callable[[Reading, *Given], T], *arguments: *Given) -> T:
        """The same of what takes microseconds, and is asked again at every change."""
        ...

    def ticket(self) -> asyncio.Event:
        """Something that is set by the first change after now, or after a moment."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether answers that last are to end."""
        ...

    async def add_progress(self, rows: Sequence[Json], *, ended: bool = False) -> None:
        """Put into rows of jobs that hold a place how far they are; where ended, also of those that did."""
        ...

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Where the output of a rank is, once there is some."""
        ...

    def record(self, job: str, attempt: int) -> Json | None:
        """What ran as an attempt, None if it was never started; from any thread. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """What the routes work with. readers are None where everything runs in one process."""

    loop: Loop
    controller: Controller
    started_at: float
    readers: Readers | None = None
    gpu_counters: GpuCounters = field(default_factory=GpuCounters)

    async def ask(self, question: Callable[[Controller], T]) -> T:
        """Run a question on the controller's thread."""
        return await self.loop.call(lambda: question(self.controller))

    async def read(
        self,
        function: Callable[[Reading, *Given], T],
        *arguments: *Given,
    ) -> T:
        """What a function of a module says of a Reading: plain values, found in milliseconds."""
        if self.readers is None or not self.readers.is_ready:
            return await self.ask(lambda asked: function(asked.reading(), *arguments))
        return await self._read(self.readers, function, arguments, Where.HERE)

    async def find_out(
        self,
        function: Callable[[Reading, *Given], T],
        *arguments: *Given,
        asker: str,
    ) -> T:
        """The same of what mostly takes milliseconds, and may take seconds. Raises as work_out."""
        return await self._beside(function, arguments, Where.BY_PACE, asker)

    async def work_out(
        self,
        function: Callable[[Reading, *Given], T],
        *arguments: *Given,
        asker: str,
    ) -> T:
        """The same of what may take seconds. Raises TooLong, and Unreachable while there is no reader."""
        return await self._beside(function, arguments, Where.APART, asker)

    async def look(self, function: Callable[[Reading, *Given], T], *arguments: *Given) -> T:
        """The same of what takes microseconds, and is asked again at every change: on the controller's thread."""
        return await self.ask(lambda asked: function(asked.reading(), *arguments))

    def ticket(self) -> asyncio.Event:
        """Something that is set by the first change after now."""
        return self.loop.changes.ticket()

    @property
    def stopping(self) -> bool:
        """Whether answers that last are to end."""
        return self.loop.stopping

    async def add_progress(self, rows: Sequence[Json], *, ended: bool = False) -> None:
        """Put into rows of jobs that hold a place how far they are; where ended, also of those that did."""
        await add_progress(rows, self.controller.cluster, ended=ended)

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Where the output of a rank is, once there is some."""
        return self.controller.cluster.log_path(job, attempt, rank)

    def record(self, job: str, attempt: int) -> Json | None:
        """What ran as an attempt, None if it was never started; from any thread. Raises OSError."""
        return self.controller.cluster.record(job, attempt)

    async def _beside(
        self, function: Callable[..., T], arguments: tuple[object, ...], where: Where, asker: str
    ) -> T:
        """Not on the controller's thread, where there is ever a reader."""
        if self.readers is None:
            return await self.ask(lambda asked: function(asked.reading(), *arguments))
        return await self._read(self.readers, function, arguments, where, asker)

    async def _read(
        self,
        readers: Readers,
        function: Callable[..., T],
        arguments: tuple[object, ...],
        where: Where,
        asker: str = "",
    ) -> T:
        """The controller says when now is: after every turn that was begun before."""
        since = await self.ask(lambda asked: asked.reading().at)
        told = await readers.ask(since, function, *arguments, where=where, asker=asker)
        answer: T = told.value
        return answer
