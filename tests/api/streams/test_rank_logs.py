"""The output of ranks as one stream: nothing lost, nothing twice, lines whole, ends known."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gantree.api.streams.logs.tails
from gantree.api.streams.logs.pieces import as_lines, as_written
from gantree.api.streams.logs.rank_logs import CHUNK_BYTES, RankLog
from gantree.api.streams.logs.streaming import (
    AttemptOutput,
    MergedLogs,
    is_over,
    stream_attempt,
    stream_job,
)
from gantree.api.streams.logs.tails import tail_start, tail_starts
from gantree.api.streams.streaming import StreamRevoked
from gantree.api.views.queries import LogState
from support.examples import examples

LINES_OF_RANKS = as_lines(ranks=True, times=False)


def output_of(*logs: RankLog) -> AttemptOutput:
    """The output of one rank as it was written, or of several line by line."""
    return AttemptOutput(MergedLogs(logs), as_written if len(logs) == 1 else LINES_OF_RANKS)


def one(path: Path) -> AttemptOutput:
    return output_of(RankLog(path, 1, 0, whole_lines=False))


async def collect(place: Path, processes: int, rank: int | None = None) -> bytes:
    async def at_once() -> bool:
        return True

    ranks = range(processes) if rank is None else (rank,)
    logs = [RankLog(place / str(each), 1, each, whole_lines=rank is None) for each in ranks]
    return b"".join([chunk async for chunk in stream_attempt(output_of(*logs), at_once)])


def lines_of(log: RankLog) -> bytes:
    """What a rank has written since, with its number."""
    return b"".join(map(LINES_OF_RANKS, log.read_on()))


def test_one_rank_comes_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"a\xff\nno end")
    assert asyncio.run(collect(tmp_path, 2, rank=1)) == b"a\xff\nno end"


def test_all_ranks_come_line_by_line_under_their_number(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"one\ntwo\n")
    (tmp_path / "2").write_bytes(b"three\nno end")
    printed = asyncio.run(collect(tmp_path, 3))
    assert printed == b"[0] one\n[0] two\n[2] three\n[2] no end\n"


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.binary(max_size=6).map(lambda raw: raw.replace(b"x", b"\n")), max_size=8))
def test_lines_survive_being_written_in_pieces(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("log") / "0"
    log, got = RankLog(path, 1, 7, whole_lines=True), b""
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        got += lines_of(log)
    got += b"".join(map(LINES_OF_RANKS, log.rest()))
    lines = b"".join(pieces).split(b"\n")
    whole = lines if lines[-1] else lines[:-1]
    assert got == b"".join(b"[7] " + line + b"\n" for line in whole)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "0"
    path.write_bytes(b"x" * (3 * CHUNK_BYTES))
    log, got = RankLog(path, 1, 0, whole_lines=True), b""
    for _ in range(3):
        got += lines_of(log)
    assert len(got) >= 2 * CHUNK_BYTES
    assert (got + b"".join(map(LINES_OF_RANKS, log.rest()))).count(b"x") == 3 * CHUNK_BYTES


def test_a_line_longer_than_a_chunk_is_no_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"x" * (5 * CHUNK_BYTES) + b"\nlast\n")
    printed = asyncio.run(collect(tmp_path, 2))
    assert printed.count(b"x") == 5 * CHUNK_BYTES
    assert printed.endswith(b"x\n[0] last\n")


def test_following_goes_over_attempts_and_ends_with_the_job(tmp_path: Path) -> None:
    async def scene() -> bytes:
        now = [LogState(0, attempt_over=True, job_over=False)]

        async def state() -> LogState:
            return now[0]

        def logs_of(attempt: int) -> AttemptOutput:
            return one(tmp_path / f"{attempt}-0")

        async def life() -> None:
            await asyncio.sleep(0.06)
            now[0] = LogState(1, attempt_over=False, job_over=False)
            (tmp_path / "1-0").write_bytes(b"first\n")
            await asyncio.sleep(0.06)
            with (tmp_path / "1-0").open("ab") as file:
                file.write(b"stopped\n")
            now[0] = LogState(2, attempt_over=False, job_over=False)
            (tmp_path / "2-0").write_bytes(b"again\n")
            await asyncio.sleep(0.06)
            with (tmp_path / "2-0").open("ab") as file:
                file.write(b"last words")
            now[0] = LogState(2, attempt_over=True, job_over=True)

        living = asyncio.create_task(life())
        printed = b"".join([new async for new in stream_job(state, logs_of, follow=True)])
        await living
        return printed

    assert asyncio.run(scene()) == b"first\nstopped\nagain\nlast words"


LAST = [
    # attempt, is it over, is the job over; attempt that is read (None: all), is it followed; is what comes all
    ((1, False, False), None, True, False),
    ((1, False, False), 1, True, False),
    ((1, True, False), None, True, False),
    ((1, True, False), 1, True, True),
    ((1, True, True), None, True, True),
    ((1, True, True), 1, True, True),
    ((1, False, False), None, False, True),
    ((1, False, False), 1, False, True),
    ((1, True, False), 2, True, False),
]


@pytest.mark.parametrize(("known", "attempt", "follow", "is_all"), LAST)
def test_what_a_daemon_that_stops_cannot_tell_to_its_end_breaks_off(
    tmp_path: Path, known: tuple[int, bool, bool], attempt: int | None, follow: bool, is_all: bool
) -> None:
    (tmp_path / "0").write_bytes(b"said\n")

    async def state() -> LogState:
        return LogState(*known, is_last=True)

    async def scene() -> bool:
        logs = one(tmp_path / "0")
        stream = stream_job(state, lambda _: logs, follow=follow)
        if attempt is not None:
            stream = stream_attempt(logs, is_over(state, attempt, follow=follow))
        try:
            async for _ in stream:
                pass
        except StreamRevoked:
            return False
        return True

    assert asyncio.run(scene()) == is_all


def test_all_attempts_of_a_job_that_has_ended_come_one_after_the_other(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        (tmp_path / f"{attempt}-0").write_bytes(b"attempt %d\n" % attempt)

    async def state() -> LogState:
        return LogState(3, attempt_over=True, job_over=True)

    async def scene(*, follow: bool) -> bytes:
        logs = partial(_logs_of, tmp_path)
        return b"".join([new async for new in stream_job(state, logs, follow=follow)])

    expected = b"attempt 1\nattempt 2\nattempt 3\n"
    assert asyncio.run(scene(follow=False)) == asyncio.run(scene(follow=True)) == expected


def _logs_of(place: Path, attempt: int) -> AttemptOutput:
    return one(place / f"{attempt}-0")


def test_without_following_a_job_that_never_ran_prints_nothing(tmp_path: Path) -> None:
    async def state() -> LogState:
        return LogState(0, attempt_over=True, job_over=False)

    async def scene() -> list[bytes]:
        return [new async for new in stream_job(state, lambda attempt: output_of(), follow=False)]

    assert asyncio.run(scene()) == []


def test_an_attempt_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    async def scene() -> bytes:
        now = [LogState(1, attempt_over=True, job_over=False)]

        async def state() -> LogState:
            return now[0]

        async def life() -> None:
            await asyncio.sleep(0.06)
            (tmp_path / "0").write_bytes(b"second\n")
            now[0] = LogState(2, attempt_over=True, job_over=True)

        living = asyncio.create_task(life())
        logs = one(tmp_path / "0")
        stream = stream_attempt(logs, is_over(state, 2, follow=True))
        printed = b"".join([new async for new in stream])
        await living
        return printed

    assert asyncio.run(scene()) == b"second\n"


def test_many_ranks_share_a_chunk(tmp_path: Path) -> None:
    for rank in range(32):
        (tmp_path / str(rank)).write_bytes(b"line\n" * 100_000)

    async def largest() -> int:
        async def at_once() -> bool:
            return True

        logs = [RankLog(tmp_path / str(each), 1, each, whole_lines=True) for each in range(32)]
        return max([len(chunk) async for chunk in stream_attempt(output_of(*logs), at_once)])

    assert asyncio.run(largest()) <= 3 * CHUNK_BYTES  # with the prefixes


LINES = st.lists(st.binary(max_size=5).map(lambda raw: raw.replace(b"\n", b"x")), max_size=9)


@settings(max_examples=examples(200), deadline=None)
@given(lines=LINES, ends=st.booleans(), wanted=st.integers(0, 11), block=st.integers(1, 7))
def test_the_tail_of_a_file_is_its_last_lines_whatever_the_blocks_it_is_read_in(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    ends: bool,
    wanted: int,
    block: int,
) -> None:
    raw = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    path = tmp_path_factory.mktemp("log") / "0"
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gantree.api.streams.logs.tails, "TAIL_BLOCK_BYTES", block)
        start, found = tail_start(path, wanted)
    last = _split(raw)
    assert raw[start:] == b"".join(last[len(last) - found :])
    assert found == min(wanted, len(last))


def _split(raw: bytes) -> list[bytes]:
    *whole, rest = raw.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def test_the_tail_of_a_file_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert tail_start(tmp_path / "none", 5) == (0, 0)


def test_the_tail_of_a_huge_file_is_found_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "0"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # with a hole: to read it would take an hour
        file.seek(0, 2)
        file.write(b"\none\ntwo\n")
    assert tail_start(path, 2) == ((1 << 40) + 1, 2)
    assert tail_start(path, 1)[0] == (1 << 40) + 5


def test_a_tail_goes_back_over_attempts_until_every_rank_has_its_lines(tmp_path: Path) -> None:
    written = {
        (1, 0): b"a\nb\n",
        (1, 1): b"c\n",
        (2, 0): b"d\ne\n",
        (2, 1): b"f\n",
        (3, 0): b"g\n",
    }
    for (attempt, rank), text in written.items():
        (tmp_path / f"{attempt}-{rank}").write_bytes(text)

    def starts(lines: int) -> dict[tuple[int, int], int]:
        return tail_starts(
            lambda attempt, rank: tmp_path / f"{attempt}-{rank}", (1, 2, 3), (0, 1), lines
        )

    assert starts(0) == {(3, 0): 2, (3, 1): 0}
    assert starts(1) == {(3, 0): 0, (3, 1): 0, (2, 0): 4, (2, 1): 0}
    assert starts(2) == starts(1) | {(2, 0): 2, (1, 0): 4, (1, 1): 0}


def test_a_tail_is_followed_by_all_that_comes_after_it(tmp_path: Path) -> None:
    path = tmp_path / "0"
    path.write_bytes(b"old\nlast\n")
    start, _ = tail_start(path, 1)
    log = RankLog(path, 1, 0, whole_lines=True, offset=start)
    assert lines_of(log) == b"[0] last\n"
    with path.open("ab") as file:
        file.write(b"new\n")
    assert lines_of(log) == b"[0] new\n"
