"""What the executor reads of the own times that ranks report: of real processes, and of files that are no reports."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gantree import training
from support.gangs import GangStage

SRC = Path(training.__file__).parents[2]
REPORT = f"""
import sys, time; sys.path.insert(0, {str(SRC)!r})
from gantree import training
for step in range(20):
    with training.step(): time.sleep(0.001)
open(f"{{sys.argv[1]}}/{{training.rank()}}", "w").close()
time.sleep(600)
"""
NO_REPORTS = {
    "text that is no JSON": "{nope",
    "a list": "[]",
    "deep nesting": "[" * 100_000,
    "no time": '{"steps": [[1, 0.5]]}',
    "a time beyond all bounds": '{"at": 1e999, "steps": [[1, 0.5]]}',
    "half a file": '{"rank": 0, "world_size": 2, "at": 1.0, "steps": [[1, 0.5], [2',
}
NO_STEPS: dict[str, Any] = {
    "none": None,
    "a text": "steps",
    "numbers": [1, 2],
    "three of a row": [[1, 2.0, 3.0]],
    "a step that is no number": [["x", 1.0], [True, 1.0], [None, 1.0], [1.5, 1.0]],
    "a step beyond all bounds": [[2**70, 1.0]],
    "times that are none": [[1, 0], [2, -1.0], [3, "x"], [4, None], [5, 10**400], [6, True]],
}


def progress(stage: GangStage) -> Path:
    return stage.state_dir / "runs" / "j" / "1" / "progress"


def start(stage: GangStage, tmp_path: Path) -> None:
    stage.start(
        sys.executable, "-S", "-c", REPORT, str(tmp_path), members=2, processes=2, gpus=(4, 6)
    )
    stage.until(lambda: all((tmp_path / str(rank)).exists() for rank in range(4)))


def test_ranks_are_read_with_their_nodes_and_gpus(stage: GangStage, tmp_path: Path) -> None:
    start(stage, tmp_path)
    stage.stop(5.0)
    stage.until_ended()
    found = stage.cluster.step_reports("j", 1)
    assert found is not None and found.world_size == 4
    assert [(each.rank, each.node, each.gpus) for each in found.ranks] == [
        (0, "n0", (4,)), (1, "n0", (6,)), (2, "n1", (4,)), (3, "n1", (6,)),
    ]  # fmt: skip
    assert all(own_s > 0.001 for each in found.ranks for own_s in each.own_s_of_step.values())
    assert stage.cluster.step_reports("j", 2) is None
    assert stage.cluster.step_reports("other", 1) is None


@pytest.fixture
def folder(stage: GangStage) -> Path:
    """The folder of a gang of two members of one process on two GPUs each, which write nothing there."""
    stage.start("sleep", "600", members=2, gpus=(0, 1))
    stage.until((stage.state_dir / "runs" / "j" / "1" / "ranks.json").exists)
    return progress(stage)


def report(folder: Path, rank: int, steps: Any, world_size: Any = 2) -> None:
    record = {"rank": rank, "world_size": world_size, "at": 1.0, "steps": steps}
    (folder / f"steps-{rank}.json").write_text(json.dumps(record))


@pytest.mark.parametrize("text", NO_REPORTS.values(), ids=NO_REPORTS.keys())
def test_a_job_may_write_anything_where_its_reports_are(
    stage: GangStage, folder: Path, text: str
) -> None:
    (folder / "steps-0.json").write_text(text)
    assert stage.cluster.step_reports("j", 1) is None


@pytest.mark.parametrize("steps", NO_STEPS.values(), ids=NO_STEPS.keys())
def test_a_rank_without_a_valid_step_is_left_out(
    stage: GangStage, folder: Path, steps: Any
) -> None:
    report(folder, 0, [[1, 0.5]])
    report(folder, 1, steps)
    found = stage.cluster.step_reports("j", 1)
    assert found is not None
    assert [each.rank for each in found.ranks] == [0]


@pytest.mark.parametrize(
    ("world_size", "ranks"),
    [(4, [0, 1, 2, 3]), (2, [0, 1]), (5, [0, 1]), ("x", [0, 1]), (-2, [0, 1])],
)
def test_a_launcher_may_have_started_more_processes(
    stage: GangStage, folder: Path, world_size: Any, ranks: list[int]
) -> None:
    for rank in range(4):
        report(folder, rank, [[1, 0.5]], world_size)
    found = stage.cluster.step_reports("j", 1)
    assert found is not None
    assert [each.rank for each in found.ranks] == ranks
    if len(ranks) == 4:
        assert [(each.node, each.gpus) for each in found.ranks] == [
            ("n0", (0,)), ("n0", (1,)), ("n1", (0,)), ("n1", (1,)),
        ]  # fmt: skip


def test_a_link_out_of_the_folder_is_not_followed(
    stage: GangStage, folder: Path, tmp_path: Path
) -> None:
    report(tmp_path, 0, [[1, 0.5]])
    (folder / "steps-0.json").symlink_to(tmp_path / "steps-0.json")
    assert stage.cluster.step_reports("j", 1) is None
