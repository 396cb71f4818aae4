"""The output of a job's ranks as one stream, in the order of time.

Ranks are merged by when their lines were written (`line_times`), a piece at a time. While a job is followed, the
stream goes over from attempt to attempt, and it ends when the job has ended and everything was passed on. An attempt
counts as read to its end only if it was over *before* its files were looked at for the last time. Where a daemon stops,
or leads no more, nobody knows what is still to come: then the stream breaks off, so that nobody takes what came for all
there is.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import attrgetter

from gantree.api.streams.logs.pieces import Form, Piece
from gantree.api.streams.logs.rank_logs import CHUNK_BYTES, RankLog
from gantree.api.streams.logs.search import LineSearch
from gantree.api.streams.streaming import StreamRevoked
from gantree.api.views.queries import LogState

LEAST_BYTES = 1 << 14
"""So much of each rank is read at once where many share a chunk."""
LOOK_EVERY_S = 0.05
PAUSE_S = 0.01
"""After a piece of CHUNK_BYTES: at most 25 MB/s for each reader, and the requests of others are answered between."""


class MergedLogs:
    """The logs of an attempt's ranks, read on in the order of time."""

    def __init__(self, logs: Sequence[RankLog]) -> None:
        self._logs = logs
        self._pending: list[deque[Piece]] = [deque() for _ in logs]

    def read_on(self) -> list[Piece] | None:
        """What has come, at most about a chunk of it; None where nothing has."""
        heads = [(self._pending[i][0].at, i) for i in range(len(self._logs)) if self._fill(i)]
        heapify(heads)
        pieces, size = [], 0
        while heads and size < CHUNK_BYTES:
            _, i = heappop(heads)
            pieces.append(self._pending[i].popleft())
            size += len(pieces[-1].data)
            if self._fill(i):
                heappush(heads, (self._pending[i][0].at, i))
        return pieces or None

    def rest(self) -> list[Piece]:
        """Last lines without an end, and what became of deleted logs."""
        rests = [piece for log in self._logs for piece in log.rest()]
        gone = [piece for log in self._logs for piece in log.deletion()]
        return sorted(rests, key=attrgetter("at")) + gone[:1]

    def _fill(self, i: int) -> bool:
        """Whether a rank has a piece; a long line that has no end yet is read until it has."""
        log, pending = self._logs[i], self._pending[i]
        before = -1
        while not pending and log.offset != before:
            before = log.offset
            pending += log.read_on(max(LEAST_BYTES, CHUNK_BYTES // len(self._logs)))
        return bool(pending)


@dataclass(frozen=True, slots=True)
class AttemptOutput:
    """The output of one attempt, in a form; only lines of a search where there is one."""

    logs: MergedLogs
    form: Form
    search: LineSearch | None = None

    async def read_on(self) -> bytes | None:
        """What has come, which may be nothing of what is wanted; None where nothing has come."""
        return self._formed(await self._read(self.logs.read_on))

    async def rest(self) -> bytes:
        """What there is at the end of an attempt."""
        return self._formed(await self._read(self.logs.rest)) or b""

    async def _read(self, read: Callable[[], list[Piece] | None]) -> list[Piece] | None:
        if self.search is None:
            return await asyncio.to_thread(read)
        return await self.search.read(read)

    def _formed(self, pieces: list[Piece] | None) -> bytes | None:
        return None if pieces is None else b"".join(map(self.form, pieces))


async def stream_attempt(
    output: AttemptOutput, over: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Everything that the ranks of one attempt write, until it is over."""
    while True:
        done = await over()
        quiet = True
        while (new := await output.read_on()) is not None:
            quiet = False
            yield new
            if len(new) >= CHUNK_BYTES:
                await asyncio.sleep(PAUSE_S)
        if done:
            break
        if quiet:
            await asyncio.sleep(LOOK_EVERY_S)
    yield await output.rest()


async def stream_job(
    state: Callable[[], Awaitable[LogState]],
    output_of_attempt: Callable[[int], AttemptOutput],
    *,
    follow: bool,
    first: int = 1,
) -> AsyncIterator[bytes]:
    """The attempts of a job from a first one on; where follow, also those that are still to come.

    Raises StreamRevoked.
    """
    attempt = first - 1
    while True:
        now = await state()
        if attempt < now.attempt:
            attempt += 1
            async for new in stream_attempt(
                output_of_attempt(attempt), is_over(state, attempt, follow=follow)
            ):
                yield new
        elif not follow or now.job_over:
            return
        else:
            _check_goes_on(now)
            await asyncio.sleep(LOOK_EVERY_S)


def is_over(
    state: Callable[[], Awaitable[LogState]], attempt: int, *, follow: bool
) -> Callable[[], Awaitable[bool]]:
    """Whether nothing more will come of an attempt, which may not have begun; where not follow, it is so now.

    It raises StreamRevoked where that will not be known here.
    """

    async def over() -> bool:
        now = await state()
        ended = now.attempt == attempt and now.attempt_over
        is_over = not follow or ended or now.attempt > attempt or now.job_over
        if not is_over:
            _check_goes_on(now)
        return is_over

    return over


def _check_goes_on(now: LogState) -> None:
    if now.is_last:
        raise StreamRevoked("the daemon stops, or leads no more")
