"""Logs stay below their cap: real ranks that write too much, holes in real files, readers on either side of them."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.api.streams.logs.gaps import gap_of
from gantree.api.streams.logs.pieces import as_lines, as_written
from gantree.api.streams.logs.rank_logs import RankLog
from gantree.api.streams.logs.tails import tail_start
from gantree.executors.local.run_limits import GIB, DiskAmount, RunLimits
from gantree.executors.local.shim.log_cap import BLOCK_BYTES, LEAST_BYTES, LogCap, cut
from gantree.executors.local.shim.shim import read_json, write_json
from support.examples import examples
from support.gangs import GangStage, four_nodes

CAP = 4 << 20
LINES = 600_000
WRITER = f"for i in range({LINES}): print('line', i, 'x' * 40)"
NOTHING_TO_KEEP_FREE = {"cap_bytes": CAP, "keep_free_bytes": 0}


def stage_with(tmp_path: Path, limits: RunLimits) -> GangStage:
    return GangStage(tmp_path / "state", four_nodes(), limits=limits)


def bytes_on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def output_of(log: RankLog, *, lines: bool = False) -> bytes:
    """All that a reader gets until nothing more comes."""
    form = as_lines(ranks=True, times=False) if lines else as_written
    out, before = b"", -1
    while log.offset != before:
        before = log.offset
        out += b"".join(map(form, log.read_on()))
    return out


def raw(path: Path, offset: int = 0) -> RankLog:
    return RankLog(path, 1, 3, whole_lines=False, offset=offset)


def capped(path: Path, limits: dict[str, int]) -> LogCap:
    return LogCap([str(path)], limits, read_json, write_json)


def test_a_rank_that_writes_for_ever_keeps_the_first_and_the_last_of_it(tmp_path: Path) -> None:
    stage = stage_with(tmp_path, RunLimits(log_cap_bytes=CAP))
    stage.start(sys.executable, "-c", WRITER)
    assert stage.until_ended() == 0
    path = stage.cluster.log_path("j", 1, 0)
    assert path.stat().st_size > 5 * CAP
    assert bytes_on_disk(path) <= CAP + BLOCK_BYTES
    first, *lines, last, end = output_of(raw(path)).split(b"\n")
    assert (first.split()[1], last.split()[1], end) == (b"0", b"%d" % (LINES - 1), b"")
    (told,) = [line for line in lines if line.startswith(b"gantree: ")]
    gap = gap_of(path)
    assert gap is not None
    assert told == f"gantree: {gap.end - gap.start:,} bytes of output were dropped here".encode()
    behind = lines[lines.index(told) + 1 :]
    assert all(line.startswith(b"line ") and line.endswith(b" " + b"x" * 40) for line in behind)
    stage.end_all()


def test_a_log_that_grows_gives_way_where_the_disk_is_short(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"x\n" * (CAP // 4))
    cap = capped(path, {"cap_bytes": GIB, "keep_free_bytes": 1 << 60})
    taken = []
    for _ in range(6):
        with path.open("ab") as file:
            file.write(b"more\n")
        cap.look()
        taken.append(bytes_on_disk(path))
    assert taken == sorted(taken, reverse=True)
    assert taken[-1] <= LEAST_BYTES
    before = taken[-1]
    cap.look()  # it has not grown
    assert bytes_on_disk(path) == before


@pytest.mark.parametrize("prefix", [b"", b"[3] "])
def test_a_reader_on_any_side_of_a_gap_gets_whole_lines_and_no_zeros(
    tmp_path: Path, prefix: bytes
) -> None:
    lines_only = bool(prefix)
    path = tmp_path / "rank-3.log"
    lines = [b"line %d" % number for number in range(CAP // 4)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    early, late, outside = (RankLog(path, 1, 3, whole_lines=lines_only) for _ in range(3))
    early.read_on(1000)
    late.read_on(CAP // 2)
    before = late.offset
    capped(path, NOTHING_TO_KEEP_FREE).look()
    gap = gap_of(path)
    assert gap is not None
    assert gap.start < before < gap.end
    for reader in (early, late, outside):
        out = output_of(reader, lines=lines_only)
        assert b"\0" not in out
        assert out.endswith(prefix + lines[-1] + b"\n")
        assert out.count(prefix + b"gantree: ") == 1
        whole = {prefix + line for line in lines}
        behind = out[out.index(b"dropped here\n") :].split(b"\n")[1:-1]
        assert whole.issuperset(behind)


def test_the_last_lines_of_a_log_do_not_reach_over_its_gap(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(CAP // 4)))
    capped(path, NOTHING_TO_KEEP_FREE).look()
    start, found = tail_start(path, 3)
    assert found == 3
    assert output_of(raw(path, start)).count(b"\n") == 3
    start, found = tail_start(path, CAP)
    out = output_of(raw(path, start))
    assert out.startswith(b"gantree: ")
    assert out.count(b"\n") == found + 1


def test_a_line_without_an_end_is_shown_behind_a_gap_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"step \r" * CAP)
    capped(path, NOTHING_TO_KEEP_FREE).look()
    out = output_of(raw(path))
    assert len(out) > CAP // 2
    assert out.endswith(b"step \r")


def test_a_log_that_its_job_has_emptied_is_capped_anew(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    cap = capped(path, NOTHING_TO_KEEP_FREE)
    for _ in range(2):
        path.write_bytes(b"x" * 3 * CAP)
        cap.look()
        assert bytes_on_disk(path) <= CAP
        path.write_bytes(b"")
        cap.look()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1 << 20, 1 << 34)), max_size=6))
def test_a_gap_only_grows_and_leaves_what_it_should(steps: list[tuple[int, int]]) -> None:
    size, gap = 0, None
    for grown, target in steps:
        size += grown + target
        was, gap = gap, cut(size, gap, target)
        assert 0 <= gap[0] <= target // 4
        assert gap[1] <= size - target // 2 + BLOCK_BYTES or was is not None
        assert was is None or (gap[0] <= was[0] and gap[1] >= was[1])
        assert gap[0] % BLOCK_BYTES == gap[1] % BLOCK_BYTES == 0


def test_a_share_of_a_disk_has_an_upper_bound() -> None:
    assert RunLimits().keep_free.of(100 * GIB) == 5 * GIB
    assert RunLimits().keep_free.of(1000 * GIB) == 10 * GIB
    assert DiskAmount(most_bytes=GIB).of(1000 * GIB) == GIB
