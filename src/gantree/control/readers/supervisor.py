"""The daemon's side of its reader: starts it, sends it queries, starts another when it dies.

A query without an answer is sent again to the next reader; a query changes nothing. While no reader is ready `query`
waits for one, at most READY_WITHIN_S. Runs in the event loop, apart from the controller's thread.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gantree.control.readers.frames import (
    LENGTH,
    FollowJournal,
    Query,
    QueryFailed,
    QueryMode,
    Ready,
    Reply,
    packed,
    unpacked,
)
from gantree.control.readers.host import ReaderHost
from gantree.control.requests.read_view import ReadPoint
from gantree.model.errors import TooOften, Unreachable

READY_WITHIN_S = 10.0
"""So long a query waits for a reader."""
INLINE_WITHIN_S = 10.0
"""So long a query that takes no time waits for its answer: a reader hangs where its journal does."""
MOST_QUERIES = 1000
"""Queries that wait for their answers; more are refused."""
MOST_OF_ONE = 200
"""The same of one asker, where the query names one."""
TRIES, TRIES_FORKED = 2, 4
"""How often a query is sent whose reader ends. One that ran in a fork did not end the reader."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Between a reader's end and the next; doubled each time until one was ready."""

log = logging.getLogger(__name__)


class ReaderLost(Exception):  # no GantreeError: it is sent again
    """The reader ended before it answered; the query is sent again."""


@dataclass(slots=True)
class _Running:
    """A reader that is ready: its socket, and the futures of the queries sent to it."""

    writer: asyncio.StreamWriter
    pid: int
    waiting: dict[int, asyncio.Future[Reply]] = field(default_factory=dict)
    of_asker: Counter[str] = field(default_factory=Counter)


class ReaderSupervisor:
    """Keeps one reader of a journal running from `start`, or the first query, on."""

    def __init__(self, host: ReaderHost, follow: FollowJournal) -> None:
        self._host, self._follow = host, follow
        self._running: _Running | None = None
        self._is_ready = asyncio.Event()
        self._trouble = "it is being started"
        self._queries = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the reader; idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    @property
    def is_ready(self) -> bool:
        """Whether a reader is ready."""
        return self._running is not None

    @property
    def pid(self) -> int | None:
        """The process of the reader."""
        return None if self._running is None else self._running.pid

    async def query(
        self,
        since: ReadPoint,
        function: Callable[..., Any],
        *arguments: Any,
        mode: QueryMode,
        asker: str = "",
    ) -> Reply:
        """The value of a module's function for a ReadView at this point or later.

        Raises what it raises; Unreachable without a reader, TooLong, and TooOften where too many queries wait. asker is
        the caller: the forks of one caller are limited.
        """
        self.start()
        tries = TRIES if mode is QueryMode.INLINE else TRIES_FORKED
        for _ in range(tries):
            running = await self._ready()
            try:
                query = self._new_query(since, mode, function, arguments, asker)
                async with asyncio.timeout(INLINE_WITHIN_S if mode is QueryMode.INLINE else None):
                    return await self._send(running, query)
            except TimeoutError:
                raise Unreachable(
                    f"the reader gave no answer within {INLINE_WITHIN_S:g} s"
                ) from None
            except ReaderLost:
                if mode is QueryMode.ADAPTIVE:
                    mode = QueryMode.FORKED  # it may be what ended the reader
        raise Unreachable(f"the reader died {tries} times on this query")

    def close(self) -> None:
        """End the reader and its queries. The host stays."""
        if self._task is not None:
            self._task.cancel()

    async def _ready(self) -> _Running:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                await self._is_ready.wait()
        except TimeoutError:
            pass
        if self._running is None:
            raise Unreachable(f"there is no reader: {self._trouble}")
        return self._running

    def _new_query(
        self,
        since: ReadPoint,
        mode: QueryMode,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        asker: str,
    ) -> Query:
        self._queries += 1
        return Query(self._queries, asker, since, mode, function, arguments)

    async def _send(self, running: _Running, query: Query) -> Reply:
        asker = query.asker
        if len(running.waiting) >= MOST_QUERIES:
            raise TooOften(f"{MOST_QUERIES} queries wait for their answers; ask again later")
        if asker and running.of_asker[asker] >= MOST_OF_ONE:
            raise TooOften(f"{MOST_OF_ONE} queries of {asker} wait for their answers; ask later")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        running.waiting[query.number] = answer
        running.of_asker[asker] += 1
        try:
            if (
                not running.writer.is_closing()
            ):  # else `_drop_running` is about to answer: the reader has ended
                running.writer.write(packed(query))
            return await answer
        finally:
            running.waiting.pop(query.number, None)
            running.of_asker[asker] -= 1
            if not running.of_asker[asker]:
                del running.of_asker[asker]

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                if await self._serve():
                    pause_s = FIRST_PAUSE_S
            except OSError as error:
                self._renew(error)
            except Exception:
                self._trouble = "the last one sent a message that cannot be read"
                log.exception("bug in a query to the reader, or in its reply")
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _renew(self, error: OSError) -> None:
        """Start another host."""
        log.error("no reader can be started (%s); another host is started", error)
        self._trouble = f"its host ended ({error}), and another is being started"
        try:
            self._host.renew()
        except OSError as again:
            self._trouble = f"its host ended, and no other can be started: {again}"
            log.error("readers: %s", self._trouble)

    async def _serve(self) -> bool:
        """Run one reader to its end; whether it was ever ready. Raises OSError where none can be started."""
        reader, writer = await asyncio.open_unix_connection(sock=self._host.start())
        try:
            return await self._listen(reader, writer)
        finally:
            self._drop_running()
            writer.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Receive replies until the reader ends; whether it was ever ready."""
        writer.write(packed(self._follow))
        try:
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                self._receive(unpacked(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, OSError):
            if self._running is None:
                log.error("no reader: %s", self._trouble)
                return False
            self._trouble = "the last one died"
            log.error("reader %d died; another is started", self._running.pid)
            return True

    def _receive(self, message: Ready | Reply | QueryFailed, writer: asyncio.StreamWriter) -> None:
        if isinstance(message, Ready):
            self._running = _Running(writer, message.pid)
            self._is_ready.set()
        elif message.number is None:
            assert isinstance(message, QueryFailed)
            self._trouble = message.text
        else:
            assert self._running is not None, "a reply before Ready"
            future = self._running.waiting.get(message.number)
            if future is None or future.done():
                return  # the caller has gone
            if isinstance(message, Reply):
                future.set_result(message)
            else:
                future.set_exception(message.error())

    def _drop_running(self) -> None:
        running, self._running = self._running, None
        self._is_ready.clear()
        for future in () if running is None else running.waiting.values():
            if not future.done():
                future.set_exception(ReaderLost())
