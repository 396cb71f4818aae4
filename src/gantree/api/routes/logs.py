"""The route of a job's output. How the output of ranks becomes one stream is in `gantree.api.logs`."""

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from gantree.api import questions
from gantree.api.access import Caller
from gantree.api.answers import comes_as
from gantree.api.backend import Reads
from gantree.api.lasting import Lasting, LastingResponse, WhoHolds
from gantree.api.logs import LogState, RankLog, is_over, rank_logs, stream_attempt, stream_job
from gantree.api.permissions import Need, needs
from gantree.model.errors import NotFound


def router(backend: Reads) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/jobs", tags=["logs"])

    @routes.get(
        "/{word}/logs",
        **comes_as("text/plain", "The output.", "[0] step 1\n"),
        **needs(Need.READ),
    )
    async def logs(
        word: str,
        held_by: WhoHolds,
        rank: Annotated[int | None, Query(ge=0)] = None,
        attempt: Annotated[int | None, Query(ge=1)] = None,
        follow: bool = False,
    ) -> StreamingResponse:
        """What the ranks of a job wrote, each line under its rank unless one is named; with follow to the job's end.

        An answer that breaks off before its end is not all of it: the daemon stops, or leads no more; ask again.
        """
        job, processes, attempts = await backend.look(questions.log_of, held_by.caller, word)
        if rank is not None and rank >= processes:
            raise NotFound(f"{job} has the ranks 0 to {processes - 1}, no rank {rank}")
        if attempt is not None and attempt > attempts and not follow:
            raise NotFound(f"{job} has had {attempts} attempts, no attempt {attempt}")

        async def may_read(caller: Caller) -> None:
            await backend.look(questions.job_id, caller, job, Need.READ)

        held_by.only_if(may_read)
        log = _JobLog(backend, held_by, job, processes, rank)
        if attempt is None:
            stream = stream_job(log.state, log.of_attempt, follow=follow)
        else:
            over = is_over(log.state, attempt, follow=follow)
            stream = stream_attempt(log.of_attempt(attempt), over)
        return LastingResponse(stream, held_by, media_type="text/plain; charset=utf-8")

    return routes


@dataclass(slots=True)
class _JobLog:
    """Where the output of one job, or of one rank of it, is found as it comes."""

    backend: Reads
    held_by: Lasting
    job: str
    processes: int
    rank: int | None
    _ticket: asyncio.Event | None = None
    _known: LogState | None = None

    def of_attempt(self, attempt: int) -> tuple[RankLog, ...]:
        path = self.backend.log_path
        return rank_logs(lambda each: path(self.job, attempt, each), self.processes, self.rank)

    async def state(self) -> LogState:
        """As it was after the last change; asked so often that nobody is asked where nothing has changed."""
        await self.held_by.renew()
        if self._known is not None and self.backend.stopping:
            return replace(self._known, is_last=True)
        if self._known is None or self._ticket is None or self._ticket.is_set():
            self._ticket = self.backend.ticket()
            self._known = await self.backend.look(questions.log_state, self.job)
        return self._known
