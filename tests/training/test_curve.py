"""The curve of an attempt: few points, evenly over any length of run, and read back whatever a job puts there."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.executors.local.progress_file import MOST_POINTS as MOST_READ
from gantree.executors.local.progress_file import curve_in
from gantree.training import curve
from gantree.training.reporting import Reporter, files_in
from support.examples import examples


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=300))
def test_a_curve_has_few_points_evenly_and_the_first_and_the_last_of_them(
    tmp_path_factory: pytest.TempPathFactory, pauses: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("progress")
    now = [1000.0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(curve, "MOST_POINTS", 16)
        reporter = Reporter(*files_in(folder), lambda: now[0], lambda: now[0])
        for step, pause in enumerate(pauses):
            reporter.report(step, 1.0 / (step + 1), None)
            now[0] += pause
        reporter.finish()
    points = curve_in(folder)
    assert 0 < len(points) <= 17
    assert points[0].step == 0
    assert [each.at for each in points] == sorted(each.at for each in points)
    assert points[-1].step == len(pauses) - 1 or now[0] - points[-1].at < 64 + max(pauses)


def test_a_curve_is_halved_when_it_is_full(tmp_path: Path) -> None:
    made = curve.Curve(tmp_path, 1.0)
    for second in range(10 * curve.MOST_POINTS):
        made.add(
            {
                "step": second,
                "loss": None,
                "samples_per_s": None,
                "step_s": 1.0,
                "at": float(second),
            }
        )
    points = curve_in(tmp_path)
    assert curve.MOST_POINTS // 2 <= len(points) <= curve.MOST_POINTS
    distances = {b.step - a.step for a, b in pairwise(points)}
    assert distances == {16}


def test_what_is_no_report_is_left_out_of_a_curve(tmp_path: Path) -> None:
    assert curve_in(tmp_path) == ()
    good = {"step": 1, "loss": 0.5, "samples_per_s": None, "step_s": None, "at": 7.0}
    rows = ["{", "[]", "7", json.dumps(good | {"step": "x"}), json.dumps(good), '{"step": 1}']
    (tmp_path / "rank-0.curve.jsonl").write_text("\n".join(rows * 3000))
    assert len(curve_in(tmp_path)) == MOST_READ
    (tmp_path / "rank-0.curve.jsonl").unlink()
    (tmp_path / "rank-0.curve.jsonl").symlink_to("/etc/passwd")
    assert curve_in(tmp_path) == ()


def test_a_full_disk_costs_points_and_stops_nothing(tmp_path: Path) -> None:
    made = curve.Curve(tmp_path / "gone", 1.0)
    for second in range(2 * curve.MOST_POINTS):
        made.add({"step": second, "at": float(second)})
