"""What follows a test server from the beginning of a block to its end: controllers, kubelets, drivers."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class Follower(ABC):
    """Tasks that run for as long as a block. What goes wrong in one of them is raised when the block ends."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    @abstractmethod
    async def begin(self) -> None:
        """Set up what has to be there, and `run` what follows."""

    def run(self, course: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Begin a task that ends with the block at the latest."""
        task = asyncio.create_task(course)
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        """One that ended well is forgotten; one that failed is told of at the end."""
        if task.cancelled() or task.exception() is None:
            self._tasks.remove(task)
