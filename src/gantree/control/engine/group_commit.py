"""Submissions that come while others are being written down wait for each other, and go together: a group commit.

One append for a whole group: under load the cost of making something durable is shared by all that wait for it, and a
caller alone waits for nobody. Callers are told as soon as their jobs are durable. Who has come by then goes before the
step, too: nobody waits for a decision about others, and one step for more jobs costs less. It follows on the
controller's thread with nothing between, so whoever asks that thread afterwards is answered after it.
"""

import asyncio
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

_Waiting = tuple[JobSubmission, "asyncio.Future[Receipt]"]


class GroupCommit:
    """Hands submissions to a controller in groups."""

    def __init__(self, loop: Loop, controller: Controller) -> None:
        self._loop = loop
        self._controller = controller
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, submission: JobSubmission) -> Receipt:
        """Take a submission; when this returns it is durable, and the step that decides about it is next."""
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
        """On the controller's thread: make a group durable, and those who came meanwhile; the step can wait for them.

        Not for ever: not for more jobs than a turn takes.
        """
        jobs = 0
        while group:
            self._take_group(group)
            jobs += sum(len(submission.jobs) for submission, _ in group)
            group = self._group(MOST_JOBS - jobs)

    def _take_group(self, group: Sequence[_Waiting]) -> None:
        """Make a group durable, and have everybody told."""
        outcomes: Sequence[Receipt | Exception]
        try:
            outcomes = self._controller.submit_batch([submission for submission, _ in group])
        except Exception as error:
            outcomes = [error] * len(group)
        self._loop.post(partial(_tell, group, outcomes))

    def _group(self, most_jobs: int) -> list[_Waiting]:
        """The first of those who wait, as many as hand in so many jobs together."""
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
