"""The route of a job's output. `gantree.api.streams.rank_logs` merges the output of ranks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.responses import documented_stream
from gantree.api.streams.rank_logs import (
    RankLog,
    is_over,
    rank_logs,
    stream_attempt,
    stream_job,
    tail_starts,
)
from gantree.api.streams.streaming import (
    AuthorizedStreamingResponse,
    CurrentStream,
    StreamAuthorization,
)
from gantree.api.views import queries
from gantree.api.views.queries import LogState
from gantree.model.errors import NotFound

LONGEST_TAIL = 1_000_000
"""Lines of each rank."""


def router(backend: QueryBackend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/jobs", tags=["logs"])

    @routes.get(
        "/{word}/logs",
        **documented_stream("text/plain", "The output.", "[0] step 1\n"),
        **needs(Need.READ),
    )
    async def logs(
        word: str,
        stream: CurrentStream,
        rank: Annotated[int | None, Query(ge=0)] = None,
        attempt: Annotated[int | None, Query(ge=1)] = None,
        follow: bool = False,
        tail: Annotated[int | None, Query(ge=0, le=LONGEST_TAIL)] = None,
    ) -> StreamingResponse:
        """What the ranks of a job wrote, each line under its rank unless one is named; with follow to the job's end.

        With tail only the last lines of each rank, and what comes after them. An answer that breaks off before its end
        is not all of it: the daemon stops, or leads no more; ask again.
        """
        job, processes, attempts = await backend.read_inline(queries.log_of, stream.caller, word)
        if rank is not None and rank >= processes:
            raise NotFound(f"{job} has the ranks 0 to {processes - 1}, no rank {rank}")
        if attempt is not None and attempt > attempts and not follow:
            raise NotFound(f"{job} has had {attempts} attempts, no attempt {attempt}")

        async def may_read(caller: Caller) -> None:
            await backend.read_inline(queries.job_id, caller, job, Need.READ)

        stream.add_check(may_read)
        log = _JobLog(backend, stream, job, processes, rank)
        if tail is not None:
            attempts_shown = range(1, attempts + 1) if attempt is None else (attempt,)
            await asyncio.to_thread(log.begin_at_tail, attempts_shown, tail)
        if attempt is None:
            output = stream_job(log.state, log.of_attempt, follow=follow, first=log.first)
        else:
            over = is_over(log.state, attempt, follow=follow)
            output = stream_attempt(log.of_attempt(attempt), over)
        return AuthorizedStreamingResponse(output, stream, media_type="text/plain; charset=utf-8")

    return routes


@dataclass(slots=True)
class _JobLog:
    """Where the output of one job, or of one rank of it, is found as it comes."""

    backend: QueryBackend
    stream: StreamAuthorization
    job: str
    processes: int
    rank: int | None
    _starts: dict[tuple[int, int], int] = field(default_factory=dict)
    _ticket: asyncio.Event | None = None
    _known: LogState | None = None

    @property
    def first(self) -> int:
        """Return the first attempt in the output."""
        return min((attempt for attempt, _ in self._starts), default=1)

    def begin_at_tail(self, attempts: Sequence[int], lines: int) -> None:
        """Leave out what is before the last lines of each rank."""
        ranks = range(self.processes) if self.rank is None else (self.rank,)
        self._starts = tail_starts(self._path_of, attempts, ranks, lines)

    def of_attempt(self, attempt: int) -> tuple[RankLog, ...]:
        return rank_logs(
            lambda rank: self._path_of(attempt, rank),
            self.processes,
            self.rank,
            lambda rank: self._starts.get((attempt, rank), 0),
        )

    def _path_of(self, attempt: int, rank: int) -> Path:
        return self.backend.log_path(self.job, attempt, rank)

    async def state(self) -> LogState:
        """Return the state after the last change; cached, because it is polled often."""
        await self.stream.revalidate()
        if self._known is not None and self.backend.stopping:
            return replace(self._known, is_last=True)
        if self._known is None or self._ticket is None or self._ticket.is_set():
            self._ticket = self.backend.ticket()
            self._known = await self.backend.read_inline(queries.log_state, self.job)
        return self._known
