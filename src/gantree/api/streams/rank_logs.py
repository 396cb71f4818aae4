"""The output of a job's ranks as one stream of bytes.

One rank alone comes as it was written. All ranks together come line by line, each with "[rank] " before it; a
last line without an end gets one. While a job is followed, the stream goes over from attempt to attempt, and it
ends when the job has ended and everything was passed on. An attempt counts as read to its end only if it was
over *before* its files were looked at for the last time. Where a daemon stops, or leads no more, nobody knows what is
still to come: then the stream breaks off, so that nobody takes what came for all there is.

Whoever wants only the last lines of each rank gets them without anybody reading what is before them: files are read
backwards, block by block, from the last attempt on until there are enough (`tail_starts`).

Where the middle of a large log was dropped, a line says how much (`log_gaps`), and the output goes on with the next
whole line. The last lines of a rank do not reach over such a gap.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from gantree.api.streams.log_gaps import Gap, dropped, gap_of
from gantree.api.streams.streaming import StreamRevoked
from gantree.api.views.queries import LogState

CHUNK_BYTES = 1 << 20
LEAST_BYTES = 1 << 14
"""So much of each rank is read at once where many share a chunk."""
TAIL_BLOCK_BYTES = 1 << 16
LONGEST_PART_BYTES = 1 << 16
"""So much of a line whose begin was dropped is left out; what goes on longer has no lines."""
LOOK_EVERY_S = 0.05
DELETED = b"gantree: the output of this attempt was deleted to make room\n"


class RankLog:
    """Reads on in one rank's log file, which need not be there yet. offset: bytes read so far."""

    def __init__(self, path: Path, prefix: bytes, offset: int = 0) -> None:
        self._path = path
        self._prefix = prefix
        self.offset = offset
        self._unfinished = b""
        self._is_in_line = self._is_behind_gap = False

    def read_on(self, most_bytes: int = CHUNK_BYTES) -> bytes:
        """What has been written since, at most so much of it; whole lines only where they get a prefix."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                new = file.read(most_bytes)
        except FileNotFoundError:
            return b""
        gap = gap_of(self._path) if new else None
        if gap is not None and gap.overlaps(self.offset, len(new)):
            new = self._over(gap, new)
        else:
            self.offset += len(new)
            new = self._whole_lines(new)
        self._is_in_line = not new.endswith(b"\n") if new else self._is_in_line
        return self._prefixed(new) if self._prefix else new

    def _over(self, gap: Gap, new: bytes) -> bytes:
        """What is before a gap, and a line that stands for the gap."""
        before = self._whole_lines(new[: max(0, gap.start - self.offset)])
        is_in_line = not before.endswith(b"\n") if before else self._is_in_line
        count = gap.end - max(self.offset, gap.start)
        self.offset, self._is_behind_gap = gap.end, True
        return before + (b"\n" if is_in_line else b"") + dropped(count)

    def _whole_lines(self, new: bytes) -> bytes:
        """Without the rest of a line whose begin was dropped."""
        if not self._is_behind_gap or not new:
            return new
        self._is_behind_gap = False
        end = new.find(b"\n", 0, LONGEST_PART_BYTES)
        return new[end + 1 :]

    @property
    def is_deleted(self) -> bool:
        """Whether the directory of the attempt was deleted (`executors.local.run_pruner`)."""
        attempt = self._path.parent.parent
        return attempt.with_name(f"{attempt.name}.deleted").exists()

    def told(self, sentence: bytes) -> bytes:
        """A line of our own, as if the rank had written it."""
        return self._prefix + sentence

    def rest(self) -> bytes:
        """The last line, if it was never ended."""
        rest, self._unfinished = self._unfinished, b""
        return self._prefix + rest + b"\n" if rest else b""

    def _prefixed(self, new: bytes) -> bytes:
        *lines, unfinished = (self._unfinished + new).split(b"\n")
        if len(unfinished) > CHUNK_BYTES:  # a line without an end must not fill the memory
            lines.append(unfinished)
            unfinished = b""
        self._unfinished = unfinished
        return b"".join(self._prefix + line + b"\n" for line in lines)


def rank_logs(
    path_of_rank: Callable[[int], Path],
    processes: int,
    rank: int | None,
    start_of_rank: Callable[[int], int] = lambda _rank: 0,
) -> tuple[RankLog, ...]:
    """Readers for one rank of an attempt, or for all of them with prefixes, each from its start on."""
    if rank is not None:
        return (RankLog(path_of_rank(rank), b"", start_of_rank(rank)),)
    return tuple(
        RankLog(path_of_rank(each), b"[%d] " % each, start_of_rank(each))
        for each in range(processes)
    )


def tail_starts(
    path_of: Callable[[int, int], Path], attempts: Sequence[int], ranks: Sequence[int], lines: int
) -> dict[tuple[int, int], int]:
    """Where to begin so that each rank comes with its last lines; attempts before these are not in it.

    path_of(attempt, rank) is a file; attempts come in their order, and the last one is in it in any case.
    """
    starts: dict[tuple[int, int], int] = {}
    missing = dict.fromkeys(ranks, lines)
    for attempt in reversed(attempts):
        if starts and not any(missing.values()):
            break
        for rank in ranks:
            starts[attempt, rank], found = tail_start(path_of(attempt, rank), missing[rank])
            missing[rank] -= found
    return starts


def tail_start(path: Path, lines: int) -> tuple[int, int]:
    """The byte at which the last lines of a file begin, and how many these are; (0, 0) where there is no file yet."""
    try:
        with path.open("rb") as file:
            gap = gap_of(path) or Gap(0, 0)
            end = file.seek(0, os.SEEK_END)
            start, found = _tail_start(file, end, lines, min(gap.end, end))
            return (gap.start if start < gap.end else start), found
    except FileNotFoundError:
        return 0, 0


def _tail_start(file: BinaryIO, end: int, lines: int, least: int) -> tuple[int, int]:
    """As `tail_start`, of what is from least on; a place before least where that has fewer lines."""
    if not lines or not end:
        return end, 0
    at, found = end - 1, 0  # a line end there ends the last line, and none begins behind it
    while at > least:
        length = min(TAIL_BLOCK_BYTES, at - least)
        at -= length
        file.seek(at)
        block = file.read(length)
        ends = block.count(b"\n")
        if found + ends >= lines:
            place = len(block)
            for _ in range(lines - found):
                place = block.rfind(b"\n", 0, place)
            return at + place + 1, lines
        found += ends
    return (0, found + 1) if least == 0 else (least - 1, found)


def _read_all(logs: Sequence[RankLog]) -> bytes:
    """What has come from all ranks; empty only where nothing has, not where a long line has no end yet."""
    of_each = max(LEAST_BYTES, CHUNK_BYTES // max(1, len(logs)))
    while True:
        before = [log.offset for log in logs]
        new = b"".join(log.read_on(of_each) for log in logs)
        if new or before == [log.offset for log in logs]:
            return new


def _are_deleted(logs: Sequence[RankLog]) -> bool:
    return bool(logs) and all(log.is_deleted for log in logs)


async def stream_attempt(
    logs: Sequence[RankLog], over: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Everything that the ranks of one attempt write, until it is over."""
    while True:
        done = await over()
        quiet = True
        while new := await asyncio.to_thread(_read_all, logs):
            quiet = False
            yield new
        if done:
            break
        if quiet:
            await asyncio.sleep(LOOK_EVERY_S)
    if rest := b"".join(log.rest() for log in logs):
        yield rest
    if await asyncio.to_thread(_are_deleted, logs):
        yield logs[0].told(DELETED)


async def stream_job(
    state: Callable[[], Awaitable[LogState]],
    logs_of_attempt: Callable[[int], Sequence[RankLog]],
    *,
    follow: bool,
    first: int = 1,
) -> AsyncIterator[bytes]:
    """The attempts of a job from a first one on; where follow, also those that are still to come. Raises LetGo."""
    attempt = first - 1
    while True:
        now = await state()
        if attempt < now.attempt:
            attempt += 1
            async for new in stream_attempt(
                logs_of_attempt(attempt), is_over(state, attempt, follow=follow)
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

    It raises LetGo where that will not be known here.
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
