"""Charts of the history: what is drawn where, and what is said of it."""

from typing import Any

import pytest

from gantree.web.pages.over_time.charts import OTHERS, charts

STARTS = [0, 3600, 7200]
NONE = {"jobs": 0, "mean_s": None, "p50_s": None, "p99_s": None}


def answer(rows: list[dict[str, Any]], until: float = 9000.0) -> dict[str, Any]:
    return {"starts": STARTS, "step_s": 3600, "until": until, "rows": rows}


def usage(name: str, allocated: list[float], capacity: float = 0.0) -> dict[str, Any]:
    seconds = [3600.0, 3600.0, 1800.0]
    gpu_s = [gpus * each for gpus, each in zip(allocated, seconds, strict=True)]
    there = [capacity * each for each in seconds]
    return {"name": name, "capacity_gpu_s": there, "allocated_gpu_s": gpu_s, "used_gpu_s": gpu_s,
            "lost_gpu_s": [0.0, 1800.0, 0.0], "preempted": [0, 2, 0]}  # fmt: skip


def waits(*p50: float | None) -> dict[str, Any]:
    steps = [
        NONE if s is None else {"jobs": 1, "mean_s": s, "p50_s": s, "p99_s": 2 * s} for s in p50
    ]
    return {"name": "", "steps": steps, "all": {"jobs": 2, "mean_s": 9.0, "p50_s": 9.0, "p99_s": 90.0}}  # fmt: skip


def test_areas_are_average_gpus_of_each_step_also_of_one_that_is_not_over() -> None:
    whole, queues = usage("", [4, 0, 8], capacity=8), [usage("a", [1, 0, 8]), usage("b", [3, 0, 0])]
    gpus, shares, _, preempted = charts(answer([whole]), answer(queues), answer([]))
    allocated = gpus.shapes[0].path
    assert allocated.startswith("M62.0,89.0 225.3,89.0 225.3,168.0"), "4 of 8 GPUs are half"
    assert "388.7,10.0 470.3,10.0" in allocated, "8 of 8 in the half of the last step that is over"
    assert gpus.words == "8.0 GPU-hours allocated, 40 % of 20; 8.0 used"
    assert [shape.name for shape in shares.shapes] == ["a", "b"]
    assert shares.shapes[1].path.startswith("M62.0,89.0 225.3,89.0"), "b lies on a"
    assert shares.words == "Allocated: a 62 %, b 38 %"
    assert preempted.words == "2 preemptions; 0.5 GPU-hours of work done again"


def test_a_step_without_a_job_breaks_the_line() -> None:
    _, _, drawn, _ = charts(answer([usage("", [1, 1, 1])]), answer([]), answer([waits(60.0, None, 30.0)]))  # fmt: skip
    half, most = drawn.shapes
    assert (half.path.count("M"), most.path.count("M")) == (2, 2)
    assert drawn.words.startswith("2 jobs started for the first time; half waited at most 0.15 min")


def test_the_smallest_queues_are_drawn_as_one() -> None:
    queues = [usage(f"q{number}", [10 - number] * 3) for number in range(9)]
    _, shares, _, _ = charts(answer([usage("", [60, 60, 60])]), answer(queues), answer([]))
    assert [shape.name for shape in shares.shapes] == [*(f"q{each}" for each in range(6)), OTHERS]


@pytest.mark.parametrize("rows", [[], [usage("", [0, 0, 0])]])
def test_nothing_is_drawn_of_nothing(rows: list[dict[str, Any]]) -> None:
    drawn = charts(answer(rows), answer([]), answer([]))
    assert len(drawn) == (4 if rows else 0)
