"""What the hook of DistributedDataParallel measures: with the real library where it is, and the arithmetic anywhere."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gantree import training
from gantree.training import ddp
from gantree.training.own_time import StepTimes, steps_file

SRC = Path(training.__file__).parents[2]
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: see docs/training.md"
)


class LateClock:
    """A clock of a device that comes to its marks when the test says so."""

    def __init__(self) -> None:
        self.now_s, self.reached_s = 0.0, 0.0
        self.broken = False

    def mark(self) -> float:
        if self.broken:
            raise RuntimeError("device lost")
        return self.now_s

    def between_s(self, begin: float, end: float) -> float | None:
        return end - begin if end <= self.reached_s else None


def reduce(tensor_bucket: Any, clock: LateClock, measuring: ddp.Measuring) -> None:
    """A hook as DDP calls it, whose future is done half a second later."""

    def then(callback: Any) -> None:
        clock.now_s += 0.5
        callback(SimpleNamespace(value=lambda: "gradients"))

    def hook(state: Any, bucket: Any) -> Any:
        return SimpleNamespace(then=then)

    ddp.measured(hook, measuring)(None, tensor_bucket)


def steps(folder: Path) -> Any:
    return json.loads((folder / "steps-0.json").read_text())["steps"]


def a_step(clock: LateClock, measuring: ddp.Measuring, own_s: float) -> None:
    clock.now_s += own_s
    for is_last in (False, True):
        reduce(SimpleNamespace(is_last=lambda last=is_last: last), clock, measuring)


def test_own_time_is_from_the_last_reduction_to_the_last_bucket(tmp_path: Path) -> None:
    times, clock = StepTimes(steps_file(tmp_path, 0), 0, 2, lambda: 0.0), LateClock()
    measuring = ddp.Measuring(times, clock)
    for own_s in (5.0, 1.0, 2.0):
        clock.reached_s = clock.now_s + own_s
        a_step(clock, measuring, own_s)
    times.finish()
    assert steps(tmp_path) == [[1, 1.0], [2, 2.0]]


def test_marks_that_the_device_has_not_come_to_are_read_later(tmp_path: Path) -> None:
    times, clock = StepTimes(steps_file(tmp_path, 0), 0, 2, lambda: 0.0), LateClock()
    measuring = ddp.Measuring(times, clock)
    for own_s in (1.0, 2.0, 3.0):
        a_step(clock, measuring, own_s)
    times.finish()
    assert list(tmp_path.iterdir()) == []
    clock.reached_s = 100.0
    a_step(clock, measuring, 4.0)
    times.finish()
    assert steps(tmp_path) == [[1, 2.0], [2, 3.0], [3, 4.0]]


def test_what_goes_wrong_in_measuring_ends_the_measuring_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times, clock = StepTimes(steps_file(tmp_path, 0), 0, 2, lambda: 0.0), LateClock()
    measuring = ddp.Measuring(times, clock)
    clock.broken = True
    for _ in range(3):
        a_step(clock, measuring, 1.0)
    assert capsys.readouterr().err.count("no longer measured: RuntimeError('device lost')") == 1


def test_outside_gantree_only_a_hook_of_the_users_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GANTREE_RUN_DIR", raising=False)
    registered: list[Any] = []
    model = SimpleNamespace(register_comm_hook=lambda *given: registered.append(given))
    assert not ddp.watch(model)
    assert not ddp.watch(model, print, "state")
    assert registered == [("state", print)]


TRAIN = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from gantree import training
from gantree.training import ddp
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
assert ddp.watch(model)
for step in range(12):
    time.sleep(0.02 * (1 + 2 * training.rank()))
    model(torch.full((1, 4), 1.0 + training.rank())).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((1, 4), 1.5))
    model.zero_grad()
dist.destroy_process_group()
"""


@needs_torch
def test_real_ddp_reduces_as_ever_and_each_rank_reports_its_own_time(tmp_path: Path) -> None:
    (tmp_path / "progress").mkdir()
    base = {
        **os.environ, "PYTHONPATH": f"{SRC}:{os.environ.get('PYTHONPATH', '')}", "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28733", "GANTREE_RUN_DIR": str(tmp_path),
    }  # fmt: skip
    ranks = [
        subprocess.Popen([sys.executable, "-c", TRAIN], env={**base, "RANK": str(rank)})
        for rank in range(2)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    for rank in range(2):
        told = json.loads((tmp_path / "progress" / f"steps-{rank}.json").read_text())["steps"]
        assert [step for step, _ in told] == list(range(1, 12))
        assert all(own_s >= 0.02 * (1 + 2 * rank) for _, own_s in told)
