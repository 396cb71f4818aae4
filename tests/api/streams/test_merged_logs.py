"""Output of ranks in the order of time: cut where times change, searched, and in both forms."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.api.streams.logs import rank_logs
from gantree.api.streams.logs.pieces import Piece, as_json, as_lines, data_of
from gantree.api.streams.logs.rank_logs import RankLog
from gantree.api.streams.logs.ranks import ranks_of
from gantree.api.streams.logs.search import LineSearch
from gantree.api.streams.logs.streaming import MergedLogs
from gantree.api.streams.logs.tails import line_start
from gantree.executors.local.shim.log_times import RECORD
from gantree.model.errors import BadFields
from support.examples import examples

Writes = list[tuple[int, bytes]]
WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.binary(max_size=5).map(lambda raw: raw.replace(b"x", b"\n"))),
    max_size=12,
)


def written(place: Path, writes: Writes) -> list[Path]:
    """The logs of three ranks after these writes, one a second, each with its time."""
    logs = [place / f"rank-{rank}.log" for rank in range(3)]
    for second, (rank, data) in enumerate(writes):
        with logs[rank].open("ab") as log, Path(f"{logs[rank]}.times").open("ab") as times:
            log.write(data)
            times.write(RECORD.pack(log.tell(), float(second)))
    return logs


def lines_by_time(writes: Writes) -> list[tuple[int, bytes]]:
    """The lines of all ranks by when their first byte was written: the plain twin."""
    found: list[tuple[int, int, int, bytes]] = []
    for rank in range(3):
        raw = b"".join(data for each, data in writes if each == rank)
        second_of = [at for at, (each, data) in enumerate(writes) if each == rank for _ in data]
        place = 0
        for line in raw.split(b"\n"):
            if place < len(raw):
                found.append((second_of[place], rank, place, line))
            place += len(line) + 1
    return [(rank, line) for _, rank, _, line in sorted(found)]


def pieces_of(logs: list[Path]) -> list[Piece]:
    merged = MergedLogs([RankLog(path, 1, n, whole_lines=True) for n, path in enumerate(logs)])
    pieces: list[Piece] = []
    while (new := merged.read_on()) is not None:
        pieces += new
    return sorted([*pieces, *merged.rest()], key=lambda piece: piece.at)


@settings(max_examples=examples(300), deadline=None)
@given(WRITES)
def test_lines_come_in_the_order_in_which_they_were_begun(
    tmp_path_factory: pytest.TempPathFactory, writes: Writes
) -> None:
    pieces = pieces_of(written(tmp_path_factory.mktemp("logs"), writes))
    got = [
        (piece.rank, line)
        for piece in pieces
        for line in piece.data.removesuffix(b"\n").split(b"\n")
    ]
    assert got == lines_by_time(writes)


@given(st.lists(st.binary(max_size=9), max_size=9))
@settings(max_examples=examples(100), deadline=None)
def test_a_long_line_is_cut_at_the_same_places_however_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes]
) -> None:
    place = tmp_path_factory.mktemp("log")
    path, whole = place / "a", place / "b"
    whole.write_bytes(b"".join(writes))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rank_logs, "LONGEST_LINE_BYTES", 3)
        log, at_once = (RankLog(each, 1, 0, whole_lines=True) for each in (path, whole))
        pieces: list[Piece] = []
        for data in writes:
            with path.open("ab") as file:
                file.write(data)
            pieces += log.read_on()
        form = as_lines(ranks=True, times=False)
        got = b"".join(map(form, [*pieces, *log.rest()]))
        assert got == b"".join(map(form, [*at_once.read_on(), *at_once.rest()]))
    assert all(len(line) <= 4 + 3 for line in got.split(b"\n"))


PIECE = Piece(2, 3, 10, 25, 1_800_000_000.25, b"loss 3.5\n\x1b[31mloss\x1b[0m 4\nend\n")


def searched(pattern: str, *pieces: Piece) -> list[Piece]:
    return LineSearch(pattern, asyncio.Semaphore(1)).matching(list(pieces))


def test_a_search_gives_whole_lines_with_their_places_and_looks_through_colours() -> None:
    assert [piece.data for piece in searched("^loss 4", PIECE)] == [b"\x1b[31mloss\x1b[0m 4\n"]
    assert [(piece.start, piece.end) for piece in searched("s 3|end", PIECE)] == [
        (10, 19),
        (35, 39),
    ]
    notice = Piece(1, 0, 0, 9, 0.0, b"gantree: dropped\n", notice=True)
    assert searched("nothing", PIECE, notice) == [notice]


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(?<=a)b", r"(a)\1", "(((a{99}){99}){99})"])
def test_a_pattern_that_could_take_long_or_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(BadFields, match="grep"):
        searched(pattern)


def test_a_pattern_that_makes_others_backtrack_takes_no_time() -> None:
    line = Piece(1, 0, 0, 1, 0.0, b"a" * 100_000 + b"\n")
    assert searched("(a*)*(a|aa)+$b", line) == []


def test_the_two_forms() -> None:
    stamp = b"2027-01-15T08:00:00.250Z "
    assert as_lines(ranks=True, times=True)(PIECE).startswith(b"[3] " + stamp + b"loss 3.5\n[3] ")
    assert as_lines(ranks=False, times=False)(PIECE) == PIECE.data
    row = json.loads(as_json(PIECE))
    assert (row["attempt"], row["rank"], row["start"], row["end"]) == (2, 3, 10, 25)
    assert data_of(row) == PIECE.data
    no_text = json.loads(as_json(Piece(1, 0, 0, 2, 0.0, b"\xff\n")))
    assert data_of(no_text) == b"\xff\n"


@pytest.mark.parametrize(
    ("text", "ranks"), [("0", (0,)), ("0,3-5", (0, 3, 4, 5)), ("2, 1,1-2", (1, 2))]
)
def test_ranks_are_read(text: str, ranks: tuple[int, ...]) -> None:
    assert ranks_of(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "1,,2", "0-9999999", "1.5", "²"])
def test_what_are_no_ranks_is_refused(text: str) -> None:
    with pytest.raises(BadFields, match="0,3-7"):
        ranks_of(text)


def test_a_place_within_a_line_is_moved_to_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"one\ntwo\nthree")
    assert [line_start(path, offset) for offset in (0, 1, 3, 4, 5, 9)] == [0, 4, 4, 4, 8, 9]
