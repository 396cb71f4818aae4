"""Submissions that come while others are being written down wait for each other, and go together: a group commit.

One append and one step for a whole group: under load the cost of making something durable is shared by all that wait
for it, and a caller alone waits for nobody.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from gantree.control.controller import Controller
from gantree.control.loop import Loop
from gantree.control.submission import Receipt
from gantree.control.submissions import HandIn

MOST_JOBS = 256
"""Jobs of one group, unless one caller alone hands in more: a turn takes no more events either."""

_Waiting = tuple[HandIn, "asyncio.Future[Receipt]"]


class Gathering:
    """Hands submissions to a controller in groups."""

    def __init__(self, loop: Loop, controller: Controller) -> None:
        self._loop = loop
        self._controller = controller
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, handed: HandIn) -> Receipt:
        """Take a submission; when this returns it is durable, and was decided about if that was possible."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((handed, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            group = self._group()
            told: Sequence[Receipt | Exception]
            try:
                together = [handed for handed, _ in group]
                told = await self._loop.call(lambda: self._controller.take(together))  # noqa: B023 - awaited at once
                await self._loop.advance(self._controller)
            except Exception as error:
                told = [error] * len(group)
            _tell(group, told)

    def _group(self) -> list[_Waiting]:
        group, jobs = [self._waiting.popleft()], 0
        while self._waiting:
            jobs += len(group[-1][0].jobs)
            if jobs + len(self._waiting[0][0].jobs) > MOST_JOBS:
                break
            group.append(self._waiting.popleft())
        return group


def _tell(group: Sequence[_Waiting], told: Sequence[Receipt | Exception]) -> None:
    for (_, future), one in zip(group, told, strict=True):
        if future.done():
            continue  # the caller has gone
        if isinstance(one, Receipt):
            future.set_result(one)
        else:
            future.set_exception(one)
