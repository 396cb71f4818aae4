"""Old run directories are deleted by age and by size, the oldest first, and never one whose end is not on record."""

import asyncio
import os
from pathlib import Path

import pytest

from gantree.api.streams.logs.pieces import as_written
from gantree.api.streams.logs.rank_logs import DELETED, RankLog
from gantree.api.streams.logs.streaming import AttemptOutput, MergedLogs, stream_attempt
from gantree.executors.local.run_limits import DiskAmount, RunLimits
from gantree.executors.local.run_pruner import RunPruner
from support.gangs import GangStage, four_nodes

NOW = 1_000_000.0
KIB = 1 << 10


def attempt(runs: Path, name: str, age_s: float, kib: int = 0, *, settled: bool = True) -> Path:
    """An attempt that ended so long ago, with so much output."""
    path = runs / name
    (path / "log").mkdir(parents=True)
    (path / "log" / "rank-0.log").write_bytes(b"x" * kib * KIB)
    if settled:
        (path / "settled").touch()
        os.utime(path / "settled", (NOW - age_s, NOW - age_s))
    return path


async def output_of(path: Path) -> bytes:
    """What a reader of an attempt that is over gets."""

    async def over() -> bool:
        return True

    logs = MergedLogs([RankLog(path, 1, 0, whole_lines=False)])
    return b"".join(
        [chunk async for chunk in stream_attempt(AttemptOutput(logs, as_written), over)]
    )


def left(runs: Path) -> list[str]:
    return sorted(str(path.relative_to(runs)) for path in runs.glob("*/*") if path.is_dir())


def test_what_ended_too_long_ago_goes_and_the_name_of_the_job_stays(tmp_path: Path) -> None:
    for name, age_s in (("a/1", 99), ("a/2", 101), ("b/1", 500), ("c/1", 0)):
        attempt(tmp_path, name, age_s)
    attempt(tmp_path, "d/1", 900, settled=False)
    RunPruner(tmp_path, RunLimits(keep_s=100)).prune(NOW)
    assert left(tmp_path) == ["a/1", "c/1", "d/1"]
    assert (tmp_path / "b").is_dir()


@pytest.mark.parametrize(
    ("most_kib", "kept"), [(400, ["a/1", "b/1"]), (1000, ["a/1", "b/1", "c/1"])]
)
def test_of_too_much_the_oldest_goes_first(tmp_path: Path, most_kib: int, kept: list[str]) -> None:
    for name, age_s in (("a/1", 1), ("b/1", 2), ("c/1", 3)):
        attempt(tmp_path, name, age_s, kib=160)
    attempt(tmp_path, "live/1", 0, kib=4000, settled=False)
    RunPruner(tmp_path, RunLimits(most=DiskAmount(most_bytes=most_kib * KIB))).prune(NOW)
    assert left(tmp_path) == [*kept, "live/1"]


def test_a_directory_that_was_half_deleted_is_finished_and_no_attempt(tmp_path: Path) -> None:
    attempt(tmp_path, "a/.pruned-1", 0, settled=False)
    attempt(tmp_path, "b/.pruned-1", 0)
    RunPruner(tmp_path, RunLimits()).prune(NOW)
    assert left(tmp_path) == []


def test_a_daemon_deletes_what_is_too_old_and_still_knows_the_job(tmp_path: Path) -> None:
    stage = GangStage(tmp_path / "state", four_nodes())
    stage.start("echo", "much")
    assert stage.until_ended() == 0
    assert asyncio.run(output_of(stage.cluster.log_path("j", 1, 0))) == b"much\n"
    stage.cluster.settle("j", 1)
    stage.limits = RunLimits(keep_s=0)
    stage.open().adopt()
    stage.until(lambda: not (tmp_path / "state/runs/j/1").exists())
    assert stage.cluster.has_run("j")
    assert stage.cluster.record("j", 1) is None
    assert asyncio.run(output_of(stage.cluster.log_path("j", 1, 0))) == DELETED
    stage.end_all()
