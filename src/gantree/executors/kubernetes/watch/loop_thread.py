"""A thread with an event loop, and the tasks on it."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import uvloop

ENDS_WITHIN_S = 5.0

log = logging.getLogger(__name__)


class LoopThread:
    """on_bug is called on the thread with an exception that a task or a callback has raised."""

    def __init__(self, name: str, on_bug: Callable[[BaseException], None]) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._on_bug = on_bug
        self._tasks: set[asyncio.Task[Any]] = set()
        self._callbacks: deque[Callable[[], None]] = deque()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Run a coroutine and return its future. Safe from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Callable[[], None]) -> None:
        """Call a function on the thread. Safe from any thread."""
        self._callbacks.append(work)
        if len(self._callbacks) == 1:  # else a call of _call_all is scheduled already
            self.loop.call_soon_threadsafe(self._call_all)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. Safe from any thread."""
        self.call(lambda: self.keep(self.loop.create_task(work)))

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keep a task until it is done. On this thread alone."""
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Cancel all tasks, run a last coroutine and end the thread. False if that takes too long: it is left then."""
        if not self._thread.is_alive():
            return True
        has_ended = True
        try:
            self.run(self._end(last)).result(ENDS_WITHIN_S)
        except TimeoutError:
            has_ended = False
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(ENDS_WITHIN_S)
        return has_ended

    async def _end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await last()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _call_all(self) -> None:
        while self._callbacks:
            try:
                self._callbacks.popleft()()
            except Exception as bug:
                self._on_bug(bug)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._on_bug(bug)
