"""When logs grew: real ranks that write in turn, and the file of times that stays small."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.api.streams.logs.line_times import offset_at, records_between
from gantree.api.streams.logs.rank_logs import RankLog
from gantree.api.streams.logs.streaming import MergedLogs
from gantree.executors.local.shim import log_times
from gantree.executors.local.shim.log_times import RECORD, LogTimes, thinned
from support.examples import examples
from support.gangs import GangStage, four_nodes

TURNS = 6
IN_TURN = f"""
import os, struct, time
rank, place = int(os.environ["RANK"]), os.environ["GANTREE_RUN_DIR"] + "/log/"
other, mine = place + f"rank-{{1 - rank}}.log", place + f"rank-{{rank}}.log"

def recorded(log):
    try:
        with open(log + ".times", "rb") as file:
            return struct.unpack("<Qd", file.read()[-16:])[0]
    except (OSError, struct.error):
        return 0

for turn in range({TURNS}):
    while recorded(other) < (turn + rank) * 7:  # the other's lines so far are on record
        time.sleep(0.001)
    os.write(1, b"turn %d\\n" % turn)
    while recorded(mine) < (turn + 1) * 7:
        time.sleep(0.001)
"""


def records_in(path: Path) -> list[tuple[int, float]]:
    return [(size, at) for size, at in RECORD.iter_unpack(path.read_bytes())]


def test_lines_of_ranks_that_write_in_turn_come_in_the_order_they_were_written(
    tmp_path: Path,
) -> None:
    stage = GangStage(tmp_path / "state", four_nodes())
    stage.start(sys.executable, "-c", IN_TURN, processes=2)
    assert stage.until_ended() == 0
    paths = [stage.cluster.log_path("j", 1, rank) for rank in (0, 1)]
    logs = [RankLog(path, 1, rank, whole_lines=True) for rank, path in enumerate(paths)]
    pieces = MergedLogs(logs).read_on()
    assert pieces is not None
    told = [(piece.rank, piece.data) for piece in pieces]
    assert told == [(rank, b"turn %d\n" % turn) for turn in range(TURNS) for rank in (0, 1)]
    stage.end_all()


TIMES = st.lists(st.floats(0, 5), min_size=0, max_size=60)


@settings(max_examples=examples(100), deadline=None)
@given(TIMES)
def test_a_thinned_file_keeps_the_newest_and_is_even_before_them(pauses: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_times, "MOST_RECORDS", 32)
        patched.setattr(log_times, "NEWEST_KEPT", 4)
        at, records = 1000.0, []
        for number, pause in enumerate(pauses):
            at += pause
            records.append((number + 1, at))
        kept = thinned(records)
    assert len(kept) <= 12 + 1 + 4
    assert kept[-4:] == records[-4:]
    assert set(kept) <= set(records)
    assert kept == sorted(kept)
    older = records[:-4]
    if older:
        assert older[-1] in kept
        distance = (older[-1][1] - older[0][1]) / 12
        of_kept = [record for record in kept if record in older]
        for size, moment in older:
            known_by = next(later for kept_size, later in of_kept if kept_size >= size)
            assert known_by - moment <= 2 * distance + 5.001


def test_a_file_of_times_stays_below_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_times, "MOST_RECORDS", 64)
    monkeypatch.setattr(log_times, "NEWEST_KEPT", 8)
    log = tmp_path / "rank-0.log"
    times = LogTimes([str(log)])
    times.look()  # there is no log yet
    for number in range(500):
        with log.open("ab") as file:
            file.write(b"x")
        times.look()
        times.look()
        assert (tmp_path / "rank-0.log.times").stat().st_size < 64 * RECORD.size
        assert records_in(tmp_path / "rank-0.log.times")[-1][0] == number + 1
    log.write_bytes(b"y")  # the job has emptied its log
    times.look()
    assert [size for size, _ in records_in(tmp_path / "rank-0.log.times")] == [1]


SIZES = st.lists(st.integers(1, 4), max_size=9)


@settings(max_examples=examples(100), deadline=None)
@given(grown=SIZES, start=st.integers(0, 30), length=st.integers(1, 9), at=st.integers(0, 12))
def test_times_are_found_as_by_a_walk_over_all_records(
    tmp_path_factory: pytest.TempPathFactory, grown: list[int], start: int, length: int, at: int
) -> None:
    log = tmp_path_factory.mktemp("times") / "rank-0.log"
    records = [(sum(grown[: n + 1]), float(n)) for n in range(len(grown))]
    log.write_bytes(b"x" * sum(grown))
    Path(f"{log}.times").write_bytes(b"".join(RECORD.pack(*each) for each in records))
    end = start + length
    beyond = [each for each in records if each[0] > start]
    last = next((n + 1 for n, each in enumerate(beyond) if each[0] >= end), len(beyond))
    assert records_between(log, start, end) == beyond[:last]
    before = [size for size, time in records if time < at]
    assert offset_at(log, at) == (before[-1] if before else 0)
