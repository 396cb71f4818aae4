"""What the routes work with: the running control loop, the way to ask its controller something, and the reader.

A route that changes something asks the controller, on its thread. One that only looks reads: the reader answers, beside
the turns, at or after everything that anybody can have been told before. `read` is for what takes milliseconds, and is
answered on the controller's thread while there is no reader. `work_out` is for what may take seconds: it is never
answered there, but where the daemon has no reader at all.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, TypeVarTuple

from gantree.api.progress_view import add_progress
from gantree.control.controller import Controller
from gantree.control.loop import Loop
from gantree.control.readers import Readers
from gantree.control.reading import Reading

Json = dict[str, Any]
T = TypeVar("T")
Given = TypeVarTuple("Given")


class Reads(Protocol):
    """What a route works with that only looks: also in a daemon that does not lead (`standing_reads`)."""

    async def read(self, function: Callable[[Reading, *Given], T], *arguments: *Given) -> T:
        """What a function of a module says of a Reading: plain values, found in milliseconds."""
        ...

    async def work_out(self, function: Callable[[Reading, *Given], T], *arguments: *Given) -> T:
        """The same of what may take seconds. Raises TooLong, and Unreachable while there is no reader."""
        ...

    async def add_progress(self, rows: Sequence[Json]) -> None:
        """Put into rows of jobs how far they say that they are."""
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """What the routes work with. readers are None where everything runs in one process."""

    loop: Loop
    controller: Controller
    started_at: float
    readers: Readers | None = None

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
        return await self._read(self.readers, function, arguments, apart=False)

    async def work_out(
        self,
        function: Callable[[Reading, *Given], T],
        *arguments: *Given,
    ) -> T:
        """The same of what may take seconds. Raises TooLong, and Unreachable while there is no reader."""
        if self.readers is None:
            return await self.ask(lambda asked: function(asked.reading(), *arguments))
        return await self._read(self.readers, function, arguments, apart=True)

    async def add_progress(self, rows: Sequence[Json]) -> None:
        """Put into rows of jobs how far they say that they are."""
        await asyncio.to_thread(add_progress, rows, self.controller.cluster)

    async def _read(
        self,
        readers: Readers,
        function: Callable[..., T],
        arguments: tuple[object, ...],
        *,
        apart: bool,
    ) -> T:
        """The controller says when now is: after every turn that was begun before."""
        since = await self.ask(lambda asked: asked.reading().at)
        told = await readers.ask(since, function, *arguments, apart=apart)
        answer: T = told.value
        return answer
