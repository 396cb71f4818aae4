"""Buckets and steps of time, and bins of waits."""

from datetime import UTC, datetime

import pytest

from gantree.accounting.buckets import DAY_S, HOUR_S, MINUTE_S, pieces
from gantree.accounting.steps import STEPS, begin_of, step_for
from gantree.accounting.waits import bin_of, middle_of, quantile


def test_a_span_is_cut_at_the_ends_of_its_buckets() -> None:
    assert list(pieces(90.0, 130.0, 130.0)) == [((60, 60), 30.0), ((60, 120), 10.0)]
    long_ago = list(pieces(1800.0, 4 * HOUR_S + 90.0, 4 * HOUR_S + 90.0))
    assert [bucket.width for bucket, _ in long_ago] == [HOUR_S] * 4 + [MINUTE_S] * 2
    assert sum(seconds for _, seconds in long_ago) == 4 * HOUR_S + 90.0 - 1800.0
    old = list(pieces(0.0, 3 * DAY_S, 400 * DAY_S))
    assert [bucket for bucket, _ in old] == [(DAY_S, day * DAY_S) for day in range(3)]


def test_a_quantile_is_within_nine_per_cent() -> None:
    for wait in (1.0, 7.3, 90.0, 5000.0, 1e6):
        assert middle_of(bin_of(wait)) == pytest.approx(wait, rel=0.1)
    jobs = {bin_of(10.0): 98, bin_of(1000.0): 2}
    assert quantile(jobs, 0.5) == pytest.approx(10, rel=0.1)
    assert quantile(jobs, 0.99) == pytest.approx(1000, rel=0.1)
    assert quantile({}, 0.5) is None
    assert bin_of(0.2) == 0


def test_a_period_is_told_in_the_widest_step_of_which_it_has_two_dozen() -> None:
    days = {
        1 / 1440: "minute",
        0.1: "5min",
        0.125: "5min",
        1: "hour",
        6: "6h",
        7: "6h",
        30: "day",
        167: "day",
    }
    assert {each: step_for(each * DAY_S) for each in days} == days
    assert step_for(365 * DAY_S) == step_for(168 * DAY_S) == "week"


@pytest.mark.parametrize(("step", "begin"), [("week", "2026-11-23"), ("day", "2026-11-28"), ("6h", "2026-11-28T18:00"),
                                             ("5min", "2026-11-28T23:55")])  # fmt: skip
def test_steps_begin_in_utc_and_weeks_on_monday(step: str, begin: str) -> None:
    last_minute = datetime(2026, 11, 28, 23, 59, 59, 900_000, UTC).timestamp()
    expected = int(datetime.fromisoformat(f"{begin}+00:00").timestamp())
    assert begin_of(last_minute, STEPS[step]) == begin_of(expected, STEPS[step]) == expected
