"""The output of ranks as one stream: nothing lost, nothing twice, lines whole, ends known."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.api.logs import (
    CHUNK_BYTES,
    LogState,
    RankLog,
    is_over,
    rank_logs,
    stream_attempt,
    stream_job,
)
from gantree.testing.examples import examples


async def collect(place: Path, processes: int, rank: int | None = None) -> bytes:
    async def at_once() -> bool:
        return True

    logs = rank_logs(lambda each: place / str(each), processes, rank)
    return b"".join([chunk async for chunk in stream_attempt(logs, at_once)])


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
    log, got = RankLog(path, b"> "), b""
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        got += log.read_on()
    got += log.rest()
    lines = b"".join(pieces).split(b"\n")
    whole = lines if lines[-1] else lines[:-1]
    assert got == b"".join(b"> " + line + b"\n" for line in whole)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "0"
    path.write_bytes(b"x" * (3 * CHUNK_BYTES))
    log, got = RankLog(path, b"> "), b""
    for _ in range(3):
        got += log.read_on()
    assert len(got) >= 2 * CHUNK_BYTES
    assert (got + log.rest()).count(b"x") == 3 * CHUNK_BYTES


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

        def logs_of(attempt: int) -> tuple[RankLog, ...]:
            return rank_logs(lambda rank: tmp_path / f"{attempt}-{rank}", 1, 0)

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


def test_without_following_a_job_that_never_ran_prints_nothing(tmp_path: Path) -> None:
    async def state() -> LogState:
        return LogState(0, attempt_over=True, job_over=False)

    async def scene() -> list[bytes]:
        return [new async for new in stream_job(state, lambda attempt: (), follow=False)]

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
        logs = rank_logs(lambda rank: tmp_path / str(rank), 1, 0)
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

        logs = rank_logs(lambda each: tmp_path / str(each), 32, None)
        return max([len(chunk) async for chunk in stream_attempt(logs, at_once)])

    assert asyncio.run(largest()) <= 3 * CHUNK_BYTES  # with the prefixes
