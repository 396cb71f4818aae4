"""A queue of objects to create in the background, with a limit on concurrent requests.

A task for each binding, and what wakes it up, cost as much as the request. So there is none: who posts is called with
what became of it, and the next of the line goes out at that very moment. Only what goes wrong is worth a task, which
whoever posts begins (`start`). Used inside the event loop alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from gantree.executors.kubernetes.apiserver.client import ApiError, Client
from gantree.model.errors import Unreachable

AT_ONCE = 32
"""Posts in flight; beside those, what is waited for has its own (`client.IN_FLIGHT`)."""

Error = ApiError | Unreachable
OnDone = Callable[[Error | None], None]
"""Told once that an object was made, or why not."""


class PostQueue:
    """The queue. keep holds a reference to a task; broken is called with errors of callbacks."""

    def __init__(
        self,
        client: Client,
        keep: Callable[[asyncio.Task[Any]], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self.client = client
        self._keep, self._broken = keep, broken
        self._queue: deque[tuple[str, object, OnDone]] = deque()
        self._in_flight, self._is_sending = 0, False

    def post(self, path: str, body: object, on_done: OnDone) -> None:
        """Make an object as soon as it is its turn."""
        self._queue.append((path, body, on_done))
        self._send_next()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin what is waited for."""
        self._keep(asyncio.get_running_loop().create_task(work))

    def _send_next(self) -> None:
        """Send the next objects; not reentrant, because refusals before sending call back at once."""
        if self._is_sending:
            return
        self._is_sending = True
        while self._queue and self._in_flight < AT_ONCE:
            path, body, on_done = self._queue.popleft()
            self._in_flight += 1
            if self.client.is_ready:
                self.client.post(path, body, partial(self._done, on_done))
            else:
                self.start(self._wait(path, body, on_done))
        self._is_sending = False

    def _done(self, on_done: OnDone, error: Error | None) -> None:
        self._in_flight -= 1
        try:
            on_done(error)
        except Exception as bug:  # else it were the connection that breaks
            self._broken(bug)
        self._send_next()

    async def _wait(self, path: str, body: object, on_done: OnDone) -> None:
        """The same where a connection has to be made first, or a token to be asked for."""
        try:
            await self.client.write("POST", path, body)
        except (ApiError, Unreachable) as error:
            self._done(on_done, error)
        else:
            self._done(on_done, None)
