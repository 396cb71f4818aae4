"""Objects that are made without anybody waiting for it: so many at once, the others in a line behind them.

A task for each binding, and what wakes it up, cost as much as the request. So there is none: who posts is called with
what became of it, and the next of the line goes out at that very moment. Only what goes wrong is worth a task, which
whoever posts begins (`again`). Used inside the event loop alone.
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
Told = Callable[[Error | None], None]
"""Told once that an object was made, or why not."""


class Posts:
    """The line. keep looks after a task; broken is told of a bug in whoever is told."""

    def __init__(
        self,
        client: Client,
        keep: Callable[[asyncio.Task[Any]], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self.client = client
        self._keep, self._broken = keep, broken
        self._line: deque[tuple[str, object, Told]] = deque()
        self._in_flight, self._is_going_on = 0, False

    def post(self, path: str, body: object, told: Told) -> None:
        """Make an object as soon as it is its turn."""
        self._line.append((path, body, told))
        self._go_on()

    def again(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin what is waited for."""
        self._keep(asyncio.get_running_loop().create_task(work))

    def _go_on(self) -> None:
        """Not within itself: what is refused before it was sent is told of at once."""
        if self._is_going_on:
            return
        self._is_going_on = True
        while self._line and self._in_flight < AT_ONCE:
            path, body, told = self._line.popleft()
            self._in_flight += 1
            if self.client.is_ready:
                self.client.post(path, body, partial(self._done, told))
            else:
                self.again(self._wait(path, body, told))
        self._is_going_on = False

    def _done(self, told: Told, error: Error | None) -> None:
        self._in_flight -= 1
        try:
            told(error)
        except Exception as bug:  # else it were the connection that breaks
            self._broken(bug)
        self._go_on()

    async def _wait(self, path: str, body: object, told: Told) -> None:
        """The same where a connection has to be made first, or a token to be asked for."""
        try:
            await self.client.write("POST", path, body)
        except (ApiError, Unreachable) as error:
            self._done(told, error)
        else:
            self._done(told, None)
