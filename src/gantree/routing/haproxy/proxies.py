"""The processes of HAProxy of one router: the one that takes requests, and older ones that finish theirs.

Replicas come, go and drain by commands, in all processes. What the configuration file says (which services there are,
how long their requests wait) needs another process: it listens to the same sockets, then the older one ends softly.
What clients still send on connections to the older one, that one hands on. A process that ends by itself is started
again.
"""

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gantree.model.errors import Unreachable
from gantree.routing.haproxy.commands import changes, deletion, gone, paths, table_lines
from gantree.routing.haproxy.config import FRONT, Settings, backends_of, files_of
from gantree.routing.haproxy.output import now_of
from gantree.routing.haproxy.process import HaproxyProcess
from gantree.routing.measurements import Now
from gantree.routing.table import RouteTable

log = logging.getLogger(__name__)
SHOW = "show stat -1 6 -1"
"""Of backends and servers."""
SHOW_WAITING = "gantree-waiting"
EXPECTED = ("New server registered", "no need to change", "IP changed", "port changed")
"""What HAProxy says to a command that it has carried out, where it says something."""
STOPPING = "gantree stopping"
SHORTEST_LIFE_S = 5.0
PAUSE_S = 1.0
IDLE_PAUSE_S = 0.05
REQUEST = f"fe={FRONT} "
"""In what `show sess` prints of a request, from its first byte to the last one of the response."""


@dataclass(slots=True, eq=False)
class _Running:
    process: HaproxyProcess
    backends: tuple[tuple[str, float, float], ...]
    table: RouteTable = field(default_factory=RouteTable)
    to_delete: list[str] = field(default_factory=list)
    is_released: bool = False

    async def update(self, table: RouteTable) -> None:
        """Tell it of the replicas of services that it knows."""
        names = {name for name, _, _ in self.backends}
        known = replace(table, services=tuple(s for s in table.services if s.backend in names))
        for command in changes(self.table, known, self.to_delete):
            await self._told(command)
        wanted = paths(known)
        self.to_delete = [
            path for path in (*self.to_delete, *gone(self.table, known)) if path not in wanted
        ]
        self.table = known
        await self.delete()

    def release(self) -> None:
        """Let it end: it works on no request. Clients may keep connections open, whose requests it hands on."""
        self.is_released = True
        self.process.release()

    async def delete(self) -> None:
        """Delete servers that have no connection any more."""
        self.to_delete = [
            path
            for path in self.to_delete
            if "deleted" not in await self.process.run(deletion(path))
        ]

    async def _told(self, command: str) -> None:
        answer = await self.process.run(command)
        if answer and not answer.startswith(EXPECTED):
            log.warning("HAProxy says to %r: %s", command, answer)


class Proxies:
    """The processes, for a table that changes."""

    def __init__(
        self,
        program: str,
        directory: Path,
        settings: Settings,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """settings.backends are those of the table. directory is private, and gets a folder for each process."""
        self.table = RouteTable()
        self.restarts = 0
        self._program = program
        self._directory = directory
        self._settings = settings
        self._environment = dict(os.environ if environment is None else environment)
        self._current: _Running | None = None
        self._older: list[_Running] = []
        self._count = 0
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process that takes requests."""
        return self._current.process.pid if self._current else None

    @property
    def is_changing(self) -> bool:
        """Whether older processes finish their requests."""
        return bool(self._older)

    async def apply(self, table: RouteTable) -> None:
        """Let all requests from now on go by this table. Raises Unreachable if HAProxy does not start."""
        async with self._lock:
            self.table = table
            if self._current is None or self._current.backends != backends_of(table):
                await self._replace()
            for each in (self._current, *self._older):
                if each is not None and each.table != table and not each.is_released:
                    await self._update(each, table)

    async def watch(self) -> None:
        """Start HAProxy again whenever it ends by itself."""
        while True:
            watched, began_s = self._current, time.monotonic()
            assert watched is not None, "apply comes first"
            code = await asyncio.shield(watched.process.ended)
            async with self._lock:
                if watched is not self._current:
                    continue
                self.restarts += 1
                log.error(
                    "HAProxy has ended (status %d) and is started again: %s",
                    code,
                    watched.process.output,
                )
                if time.monotonic() - began_s < SHORTEST_LIFE_S and self.restarts > 1:
                    await asyncio.sleep(PAUSE_S)
                self._current = None
                await self._start_again()

    async def now(self) -> Now:
        """What is in work, in all processes. Old servers and processes that are done with are let go."""
        async with self._lock:
            statistics, waiting = [], []
            for each in [self._current, *self._older]:
                if each is None or not each.process.is_running:
                    continue
                try:
                    statistics.append(await each.process.run(SHOW))
                    waiting.append(await each.process.run(SHOW_WAITING))
                    await each.delete()
                except Unreachable:
                    continue  # it has just ended; `watch` sees to it
                if each is not self._current and now_of(statistics[-1:], waiting[-1:]).is_idle:
                    each.release()
            self._older = [each for each in self._older if each.process.is_running]
            return now_of(statistics, waiting)

    async def end(self, within_s: float) -> None:
        """Let all processes finish what they have begun, for so long."""
        running = [each for each in (self._current, *self._older) if each is not None]
        self._current, self._older = None, []
        for each in running:
            each.process.end_softly()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for each in running:
                    await _until_idle(each.process)
        for each in running:
            each.process.kill()
            await each.process.ended

    async def _start_again(self) -> None:
        while True:
            try:
                await self._replace()
                assert self._current is not None
                await self._update(self._current, self.table)
                return
            except Unreachable as error:
                log.error("%s", error)
                await asyncio.sleep(PAUSE_S)

    async def _replace(self) -> None:
        """Start a process for the table; the one before ends softly."""
        self._count += 1
        directory = self._directory / str(self._count)
        settings = replace(self._settings, backends=backends_of(self.table))
        files = files_of(settings, directory, table_lines(self.table))
        process = await HaproxyProcess.start(
            self._program, directory, files, tuple(settings.listeners), self._environment
        )
        before, self._current = self._current, _Running(process, settings.backends)
        await self._update(self._current, self.table)
        if before is not None:
            self._older.append(before)
            with suppress(Unreachable):
                await before.process.run(STOPPING)
            before.process.end_softly()

    async def _update(self, running: _Running, table: RouteTable) -> None:
        try:
            await running.update(table)
        except Unreachable as error:
            log.warning("%s", error)
            running.process.kill()  # `watch` starts another one, with the whole table


async def _until_idle(process: HaproxyProcess) -> None:
    """Wait until a process works on no request; connections on which clients keep silent do not count."""
    with suppress(Unreachable):  # it has ended
        while process.is_running and REQUEST in await process.run("show sess"):
            await asyncio.sleep(IDLE_PAUSE_S)
