"""The route of a job's output. `gantree.api.streams.logs.streaming` merges the output of ranks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.responses import documented_stream
from gantree.api.streams.logs.line_times import offset_at
from gantree.api.streams.logs.pieces import Form, as_json, as_lines, as_written
from gantree.api.streams.logs.rank_logs import RankLog
from gantree.api.streams.logs.ranks import ranks_of
from gantree.api.streams.logs.search import LONGEST_PATTERN, LineSearch
from gantree.api.streams.logs.streaming import (
    AttemptOutput,
    MergedLogs,
    is_over,
    stream_attempt,
    stream_job,
)
from gantree.api.streams.logs.tails import line_start, tail_starts
from gantree.api.streams.streaming import (
    AuthorizedStreamingResponse,
    CurrentStream,
    StreamAuthorization,
)
from gantree.api.views import queries
from gantree.api.views.queries import LogState
from gantree.model.errors import BadFields, NotFound, Problem

LONGEST_TAIL = 1_000_000
"""Lines of each rank."""
JSON_LINES = "application/x-ndjson"
_JSON_EXAMPLE = '{"attempt":1,"rank":0,"start":0,"end":7,"at":1800000000.5,"text":"step 1\\n"}\n'


class LogFormat(StrEnum):
    """text: the lines. json: an object per piece, a line each."""

    TEXT = "text"
    JSON = "json"


def router(backend: QueryBackend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/jobs", tags=["logs"])
    searches = asyncio.Semaphore(1)

    @routes.get(
        "/{word}/logs",
        **documented_stream(
            "text/plain", "The output.", "[0] step 1\n", **{JSON_LINES: _JSON_EXAMPLE}
        ),
        **needs(Need.READ),
    )
    async def logs(
        word: str,
        stream: CurrentStream,
        rank: Annotated[int | None, Query(ge=0)] = None,
        ranks: Annotated[str | None, Query(max_length=10_000)] = None,
        attempt: Annotated[int | None, Query(ge=1)] = None,
        follow: bool = False,
        tail: Annotated[int | None, Query(ge=0, le=LONGEST_TAIL)] = None,
        since: Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False)] = None,
        grep: Annotated[str | None, Query(min_length=1, max_length=LONGEST_PATTERN)] = None,
        timestamps: bool = False,
        format: LogFormat = LogFormat.TEXT,  # the name of the parameter
    ) -> StreamingResponse:
        """What the ranks of a job wrote, in the order of time, each line after its rank; with follow to the job's end.

        One `rank` comes as it was written; `ranks` names several: `0,3-7`. With `tail` only the last lines of each
        rank, and with `since` (seconds since 1970) only what was written from then on, and what comes after them. With
        `grep` only the lines of all these that match a regular expression of RE2. `timestamps` puts before each line
        when it was written.

        `format=json` gives an object for each piece of output: bytes `start` to `end` of the log of an `attempt` and
        `rank`, written by `at`, as `text`, or as `base64` where they are not UTF-8; `notice`: a sentence of gantree's
        own.

        An answer that breaks off before its end is not all of it: the daemon stops, or leads no more; ask again.
        """
        job, processes, attempts = await backend.read_inline(queries.log_of, stream.caller, word)
        wanted = _ranks(job, processes, rank, ranks)
        if attempt is not None and attempt > attempts and not follow:
            raise NotFound(f"{job} has had {attempts} attempts, no attempt {attempt}")
        search = None if grep is None else LineSearch(grep, searches)

        async def may_read(caller: Caller) -> None:
            await backend.read_inline(queries.job_id, caller, job, Need.READ)

        stream.add_check(may_read)
        is_raw = rank is not None and search is None and not timestamps
        form = _form(format, is_raw=is_raw, ranks=rank is None, times=timestamps)
        log = _JobLog(backend, stream, job, wanted, form, search, is_raw=is_raw)
        attempts_shown = range(1, attempts + 1) if attempt is None else (attempt,)
        if tail is not None or since is not None:
            await asyncio.to_thread(log.begin_late, attempts_shown, tail, since)
        if attempt is None:
            output = stream_job(log.state, log.of_attempt, follow=follow, first=log.first)
        else:
            over = is_over(log.state, attempt, follow=follow)
            output = stream_attempt(log.of_attempt(attempt), over)
        media_type = JSON_LINES if format is LogFormat.JSON else "text/plain; charset=utf-8"
        return AuthorizedStreamingResponse(output, stream, media_type=media_type)

    return routes


def _ranks(job: str, processes: int, rank: int | None, ranks: str | None) -> Sequence[int]:
    """The ranks that are wanted. Raises BadFields and NotFound."""
    if rank is not None and ranks is not None:
        allowed = "either rank or ranks"
        raise BadFields([Problem("request", None, "ranks", repr(ranks)[:100], allowed)])
    if rank is None and ranks is None:
        return range(processes)
    wanted = (rank,) if rank is not None else ranks_of(ranks or "")
    if wanted[-1] >= processes:
        raise NotFound(f"{job} has the ranks 0 to {processes - 1}, no rank {wanted[-1]}")
    return wanted


def _form(format: LogFormat, *, is_raw: bool, ranks: bool, times: bool) -> Form:
    if format is LogFormat.JSON:
        return as_json
    return as_written if is_raw else as_lines(ranks=ranks, times=times)


@dataclass(slots=True)
class _JobLog:
    """Where the output of one job, or of some of its ranks, is found as it comes."""

    backend: QueryBackend
    stream: StreamAuthorization
    job: str
    ranks: Sequence[int]
    form: Form
    search: LineSearch | None
    is_raw: bool
    _starts: dict[tuple[int, int], int] = field(default_factory=dict)
    _ticket: asyncio.Event | None = None
    _known: LogState | None = None

    @property
    def first(self) -> int:
        """Return the first attempt in the output."""
        return min((attempt for attempt, _ in self._starts), default=1)

    def begin_late(self, attempts: Sequence[int], lines: int | None, since: float | None) -> None:
        """Leave out what is before the last lines of each rank, and what was written before a moment."""
        if lines is not None:
            self._starts = tail_starts(self._path_of, attempts, self.ranks, lines)
        if since is None:
            return
        places = self._starts or {(each, rank): 0 for each in attempts for rank in self.ranks}
        for (attempt, rank), start in places.items():
            path = self._path_of(attempt, rank)
            late = line_start(path, offset_at(path, since))
            self._starts[attempt, rank] = max(start, late)

    def of_attempt(self, attempt: int) -> AttemptOutput:
        """What the ranks of an attempt write."""
        logs = [
            RankLog(
                self._path_of(attempt, rank),
                attempt,
                rank,
                whole_lines=not self.is_raw,
                offset=self._starts.get((attempt, rank), 0),
            )
            for rank in self.ranks
        ]
        return AttemptOutput(MergedLogs(logs), self.form, self.search)

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
