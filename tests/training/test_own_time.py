"""How a rank writes down its own time of each step: what is measured, how often it is written, and what is left out."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree import training
from gantree.training.own_time import NEWEST, OwnStep, StepTimes, step_times_of, steps_file
from support.examples import examples


class Clock:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def told(folder: Path, rank: int = 1) -> Any:
    return json.loads((folder / f"steps-{rank}.json").read_text())


def test_the_time_within_the_block_counts_and_that_outside_does_not(tmp_path: Path) -> None:
    clock = Clock()
    times = StepTimes(steps_file(tmp_path, 1), 1, 4, clock, lambda: 77.0)
    for own_s in (0.25, 0.5):
        with OwnStep(times, None):
            clock.now_s += own_s
        clock.now_s += 10.0
    assert told(tmp_path) == {
        "rank": 1,
        "world_size": 4,
        "at": 77.0,
        "steps": [[0, 0.25], [1, 0.5]],
    }


def test_a_block_that_raises_and_times_that_are_none_are_left_out(tmp_path: Path) -> None:
    clock = Clock()
    times = StepTimes(steps_file(tmp_path, 1), 1, 4, clock)
    with pytest.raises(ZeroDivisionError), OwnStep(times, 5):
        clock.now_s += 1.0
        raise ZeroDivisionError
    for own_s in (math.nan, math.inf, 0.0, -1.0):
        times.add(own_s)
    times.finish()
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.floats(0.001, 3), min_size=1, max_size=400))
def test_at_most_one_write_a_second_of_the_newest_steps_and_all_of_them_at_the_end(
    own: list[float],
) -> None:
    clock, written = Clock(), []

    class Kept(StepTimes):
        def _write(self) -> None:
            self._is_written = True
            written.append((clock.now_s, list(self._steps)))

    times = Kept(steps_file(Path("/nonexistent"), 1), 1, 2, clock)
    for own_s in own:
        clock.now_s += own_s
        times.add(own_s)
    assert all(b[0] - a[0] >= 1 for a, b in pairwise(written))
    times.finish()
    times.finish()
    assert written[-1][1] == list(enumerate(own))[-NEWEST:]
    assert len(written) == len({at for at, _ in written} | {clock.now_s})


def test_a_number_that_goes_back_begins_anew(tmp_path: Path) -> None:
    times = StepTimes(steps_file(tmp_path, 1), 1, 2, Clock())
    for step in (7, 8, 3, 4):
        times.add(1.0, step)
    times.finish()
    assert [step for step, _ in told(tmp_path)["steps"]] == [3, 4]


def test_the_file_is_small_whatever_the_numbers(tmp_path: Path) -> None:
    times = StepTimes(steps_file(tmp_path, 10**5), 10**5, 10**6, Clock())
    for step in range(NEWEST):
        times.add(math.pi * 1e-5, 10**9 + step)
    times.finish()
    assert (tmp_path / "steps-100000.json").stat().st_size < 10_000


def test_a_full_disk_loses_times_and_stops_nothing(tmp_path: Path) -> None:
    StepTimes(steps_file(tmp_path / "gone", 1), 1, 2).add(1.0)


def test_only_a_rank_of_a_gang_that_gantree_started_measures(tmp_path: Path) -> None:
    run = {"GANTREE_RUN_DIR": str(tmp_path), "RANK": "1", "WORLD_SIZE": "2"}
    assert step_times_of(run) is None
    (tmp_path / "progress").mkdir()
    assert step_times_of(run) is not None
    assert step_times_of({**run, "WORLD_SIZE": "1"}) is None
    assert step_times_of({"WORLD_SIZE": "2"}) is None


def test_outside_gantree_the_block_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANTREE_RUN_DIR", raising=False)
    with training.step(3):
        pass
    assert training.step_times() is None
