"""The daemon's side of its reader: starts it, asks it, starts another when it dies.

A question that a dying reader leaves is asked again of the next one; to ask changes nothing. While no reader is
ready `ask` waits for one, but not for ever. Runs in the event loop; the controller's thread knows nothing of it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gantree.control.readers.frames import (
    LENGTH,
    Failed,
    Follow,
    Question,
    Ready,
    Told,
    Where,
    packed,
    unpacked,
)
from gantree.control.readers.host import ReaderHost
from gantree.control.requests.read_view import Moment
from gantree.model.errors import TooOften, Unreachable

READY_WITHIN_S = 10.0
"""So long a question waits for a reader."""
MOST_QUESTIONS = 1000
"""Questions that wait for their answers; more are refused."""
MOST_OF_ONE = 200
"""The same of one asker, where it is said who asks."""
TRIES, TRIES_APART = 2, 4
"""So often a question is asked whose reader ends. Apart from the reader, it is not what the reader died of."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Between a reader that ended and the next; twice as long each time, until one has answered."""

log = logging.getLogger(__name__)


class Lost(Exception):  # no GantreeError: it is asked again
    """The reader ended before it answered."""


@dataclass(slots=True)
class _Running:
    """A reader that is ready: how to write to it, and who waits for what."""

    writer: asyncio.StreamWriter
    pid: int
    waiting: dict[int, asyncio.Future[Told]] = field(default_factory=dict)
    of_asker: Counter[str] = field(default_factory=Counter)


class Readers:
    """One reader after the other, for one journal, from `start` on."""

    def __init__(self, host: ReaderHost, follow: Follow) -> None:
        self._host, self._follow = host, follow
        self._running: _Running | None = None
        self._is_ready = asyncio.Event()
        self._trouble = "it is being started"
        self._asked = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to have readers; to begin twice is the same as once."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    @property
    def is_ready(self) -> bool:
        """Whether there is a reader to ask."""
        return self._running is not None

    @property
    def pid(self) -> int | None:
        """The process of the reader."""
        return None if self._running is None else self._running.pid

    async def ask(
        self,
        since: Moment,
        function: Callable[..., Any],
        *arguments: Any,
        where: Where,
        asker: str = "",
    ) -> Told:
        """What a function of a module says about a moment, or a later one.

        Raises what it raises; Unreachable where there is no reader, TooLong, and TooOften where too many ask. asker is
        who waits for it; whoever has many worked out apart leaves room for others.
        """
        tries = TRIES if where is Where.HERE else TRIES_APART
        for _ in range(tries):
            running = await self._ready()
            try:
                question = self._question(since, where, function, arguments, asker)
                return await self._asked_of(running, question)
            except Lost:
                if where is Where.BY_PACE:
                    where = Where.APART  # it may be what the reader died of
        raise Unreachable(f"the process that answers questions died {tries} times over this one")

    def close(self) -> None:
        """End the reader, and let nobody wait for it. The host stays."""
        if self._task is not None:
            self._task.cancel()

    async def _ready(self) -> _Running:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                await self._is_ready.wait()
        except TimeoutError:
            pass
        if self._running is None:
            raise Unreachable(f"the process that answers questions is not there: {self._trouble}")
        return self._running

    def _question(
        self,
        since: Moment,
        where: Where,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        asker: str,
    ) -> Question:
        self._asked += 1
        return Question(self._asked, asker, since, where, function, arguments)

    async def _asked_of(self, running: _Running, question: Question) -> Told:
        asker = question.asker
        if len(running.waiting) >= MOST_QUESTIONS:
            raise TooOften(f"{MOST_QUESTIONS} questions wait for their answers; ask again later")
        if asker and running.of_asker[asker] >= MOST_OF_ONE:
            raise TooOften(f"{MOST_OF_ONE} questions of {asker} wait for their answers; ask later")
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        running.waiting[question.number] = answer
        running.of_asker[asker] += 1
        try:
            if (
                not running.writer.is_closing()
            ):  # else `_lose` is about to answer: the reader has ended
                running.writer.write(packed(question))
            return await answer
        finally:
            running.waiting.pop(question.number, None)
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
                self._trouble = "what the last one said is not understood"
                log.exception("bug in what a reader is asked, or in what it says")
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _renew(self, error: OSError) -> None:
        """The host of readers is gone."""
        log.error("questions: no reader can be had (%s); another host is started", error)
        self._trouble = f"their host was gone ({error}), and another is being started"
        try:
            self._host.renew()
        except OSError as again:
            self._trouble = f"their host is gone, and no other can be started: {again}"
            log.error("questions: %s", self._trouble)

    async def _serve(self) -> bool:
        """One reader, to its end; whether it was ever ready. Raises OSError where there is none to be had."""
        reader, writer = await asyncio.open_unix_connection(sock=self._host.start())
        try:
            return await self._listen(reader, writer)
        finally:
            self._lose()
            writer.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Hand out answers until the reader ends; whether it was ever ready."""
        writer.write(packed(self._follow))
        try:
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                self._hear(unpacked(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, OSError):
            if self._running is None:
                log.error("questions: no reader: %s", self._trouble)
                return False
            self._trouble = "the last one died"
            log.error("questions: reader %d died; another is started", self._running.pid)
            return True

    def _hear(self, message: Ready | Told | Failed, writer: asyncio.StreamWriter) -> None:
        if isinstance(message, Ready):
            self._running = _Running(writer, message.pid)
            self._is_ready.set()
        elif message.number is None:
            assert isinstance(message, Failed)
            self._trouble = message.text
        else:
            assert self._running is not None, "it answers before it is ready"
            future = self._running.waiting.get(message.number)
            if future is None or future.done():
                return  # the caller has gone
            if isinstance(message, Told):
                future.set_result(message)
            else:
                future.set_exception(message.error())

    def _lose(self) -> None:
        running, self._running = self._running, None
        self._is_ready.clear()
        for future in () if running is None else running.waiting.values():
            if not future.done():
                future.set_exception(Lost())
