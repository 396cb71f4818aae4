"""Group commit: submissions that arrive during an append are made durable together by the next one.

Under load the cost of a durable write is shared by all submissions of the group; a lone submission does not wait.
Callers get their receipts as soon as their jobs are durable. Submissions that have arrived by then go before the step
that decides, too. The step follows on the controller's thread with nothing between.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.requests.submission_checks import Receipt
from gantree.control.requests.submissions import JobSubmission

MOST_JOBS = 256
"""Jobs of one group, unless one caller alone hands in more: a turn takes no more events either."""
LONGEST_S = 0.005
"""After so long the step comes first: else whoever submits without a pause keeps others waiting for decisions."""

_Waiting = tuple[JobSubmission, "asyncio.Future[Receipt]"]


class GroupCommit:
    """Passes submissions to a controller in groups."""

    def __init__(self, loop: Loop, controller: Controller) -> None:
        self._loop = loop
        self._controller = controller
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, submission: JobSubmission) -> Receipt:
        """Submit; on return the jobs are durable, and the step that decides about them is next."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            group = self._group(MOST_JOBS) or [self._waiting.popleft()]
            with suppress(Exception):  # a bug in the step: `Loop.run` raises it
                await self._loop.advance(self._controller, partial(self._take, group))

    def _take(self, group: Sequence[_Waiting]) -> None:
        """On the controller's thread: make a group durable, then those that arrived meanwhile, up to a turn's jobs."""
        jobs, until_s = 0, time.perf_counter() + LONGEST_S
        while group:
            self._take_group(group)
            jobs += sum(len(submission.jobs) for submission, _ in group)
            group = self._group(MOST_JOBS - jobs) if time.perf_counter() < until_s else []

    def _take_group(self, group: Sequence[_Waiting]) -> None:
        """Make a group durable, and give out the receipts."""
        outcomes: Sequence[Receipt | Exception]
        try:
            outcomes = self._controller.submit_batch([submission for submission, _ in group])
        except Exception as error:
            outcomes = [error] * len(group)
        self._loop.post(partial(_tell, group, outcomes))

    def _group(self, most_jobs: int) -> list[_Waiting]:
        """The first submissions that wait, up to so many jobs."""
        group: list[_Waiting] = []
        while self._waiting and len(self._waiting[0][0].jobs) <= most_jobs:
            group.append(self._waiting.popleft())
            most_jobs -= len(group[-1][0].jobs)
        return group


def _tell(group: Sequence[_Waiting], outcomes: Sequence[Receipt | Exception]) -> None:
    for (_, future), one in zip(group, outcomes, strict=True):
        if future.done():
            continue  # the caller has gone
        if isinstance(one, Receipt):
            future.set_result(one)
        else:
            future.set_exception(one)
