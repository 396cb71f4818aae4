"""The example trains for real, alone and as a gang, and goes on where its checkpoint left it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.formats.job.reader import read_job
from gantree.model.events import CheckpointSaved, GangEnded
from support.gangs import GangStage, four_nodes, left_over

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GangStage]:
    stage = GangStage(tmp_path / "state", four_nodes())
    yield stage
    stage.end_all()
    assert left_over(tmp_path) == []


def train(stage: GangStage, path: Path, attempt: int, *options: str) -> None:
    stage.start(
        sys.executable, str(EXAMPLE / "train.py"), *options,
        attempt=attempt, members=2, processes=2, checkpoint_path=str(path),
        env=(("PYTHONPATH", str(EXAMPLE.parents[1] / "src")),),
    )  # fmt: skip


def losses(log: str) -> dict[int, str]:
    """Loss by step, as printed."""
    return {
        int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", log, re.MULTILINE)
    }


def test_a_gang_saves_on_request_stops_and_resumes_to_the_same_result(
    stage: GangStage, tmp_path: Path
) -> None:
    train(stage, tmp_path / "ckpt", 1, "--steps", "100000", "--step-s", "0.02")
    stage.until(lambda: len(losses(stage.log())) > 5, timeout_s=60)
    stage.save("r1")
    saved = stage.until_told(CheckpointSaved)
    assert saved.request == "r1"
    stage.stop()
    stage.until_ended()
    assert f"saved step {saved.step}\n" in stage.log()

    last = saved.step + 10
    train(stage, tmp_path / "ckpt", 2, "--steps", str(last), "--step-s", "0.001")
    stage.until(lambda: len(stage.told(GangEnded)) == 2, timeout_s=60)
    resumed = stage.log(attempt=2)
    assert resumed.startswith(f"resumed from step {saved.step}\nstep {saved.step + 1} loss")
    assert stage.told(GangEnded)[-1].exit_code == 0

    train(stage, tmp_path / "other", 3, "--steps", str(last))
    stage.until(lambda: len(stage.told(GangEnded)) == 3, timeout_s=60)
    unbroken = losses(stage.log(attempt=3))
    assert {**losses(stage.log()), **losses(resumed)}.items() >= {
        step: unbroken[step] for step in range(1, last + 1)
    }.items()


def test_alone_it_learns(tmp_path: Path) -> None:
    alone = {name: text for name, text in os.environ.items() if not name.startswith("GANTREE_")}
    run = subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py"), "--steps", "300"],
        cwd=tmp_path, env=alone | {"PYTHONPATH": str(EXAMPLE.parents[1] / "src")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    printed = losses(run.stdout)
    assert float(printed[300]) < 0.7 * float(printed[1])


@pytest.mark.parametrize("name", ["train", "ddp"])
def test_its_job_files_are_valid(name: str) -> None:
    path = EXAMPLE / f"{name}.yaml"
    (job,) = read_job(path.read_text(), path.name)
    assert job.name == name
