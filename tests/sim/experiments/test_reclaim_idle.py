"""reclaim-idle: the closed form against periods that are drawn, and hours of the trace with and without the rule."""

from dataclasses import replace
from random import Random

import pytest

from gantree.sim.experiments.sharing import idle_week
from gantree.sim.experiments.sharing.idle_week import Case, idle_periods, idle_share, run_case
from gantree.sim.experiments.sharing.reclaim_idle import regained

CASE = Case(1, 1800.0, None, 0.49, 0.25, 60.0, 15.0, days=0.1)


@pytest.mark.parametrize("threshold_s", [0.0, 615.0, 900.0])
def test_what_comes_back_is_what_lies_beyond_the_threshold(threshold_s: float) -> None:
    random = Random(1)
    idle, period_s, restart_s, resumed = 0.4, 1800.0, 60.0, 0.65
    periods_s = [random.expovariate(1 / period_s) for _ in range(200_000)]
    back_s = 0.0
    for length_s in periods_s:
        if length_s > threshold_s:
            back_s += length_s - threshold_s - (restart_s if random.random() < resumed else 0.0)
    held_s = sum(periods_s) / idle
    found = regained(idle, period_s, threshold_s, restart_s, resumed)
    assert found == pytest.approx(back_s / held_s, rel=0.02)


def test_idle_periods_have_the_published_share_and_do_not_overlap() -> None:
    lots, day_s = Random(3), 86_400.0
    drawn = [idle_periods(day_s, idle_share(day_s, 0.49, 0.25), 1800.0, lots) for _ in range(300)]
    idle_s = sum(one.length_s for periods in drawn for one in periods)
    assert idle_s / (300 * day_s) == pytest.approx(0.25, abs=0.01)
    assert idle_share(3600.0, 0.49, 0.25) == 0.49
    for periods in drawn:
        ends = [0.0, *(one.end_s for one in periods)]
        assert all(one.start_s >= end for one, end in zip(periods, ends, strict=False))
        assert ends[-1] <= day_s


def test_less_is_held_under_the_rule_and_no_more_than_was_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = idle_week.rows_of(CASE.days)[:25]
    monkeypatch.setattr(idle_week, "rows_of", lambda days: rows)
    without, ruled = run_case(CASE), run_case(replace(CASE, reclaim_s=900.0))
    work_gpu_h = sum(row.duration_s * row.members * row.gpus_per_member for row in rows) / 3600
    starts_gpu_h = sum(row.members * row.gpus_per_member for row in rows) * CASE.restart_s / 3600
    assert without.held_gpu_h == pytest.approx(work_gpu_h + starts_gpu_h)
    assert without.reclaims == 0 < ruled.reclaims
    assert 0.0 < without.held_gpu_h - ruled.held_gpu_h < without.idle_gpu_h
