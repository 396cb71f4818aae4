"""The load of the hour of the week: what it learns, and what it tells of the coming hours."""

import pytest

from gantree.services.load_of_week import HOUR_S, HOURS, LoadOfWeek

WEEK_S = HOURS * HOUR_S


def learned(*weeks: float) -> LoadOfWeek:
    """Weeks in which each hour needs its number of the day, times a factor a week; a sample every ten minutes."""
    table = LoadOfWeek()
    for week, factor in enumerate(weeks):
        for sample in range(HOURS * 6):
            at_s = week * WEEK_S + sample * 600.0
            table = table.noted(at_s, factor * (at_s // HOUR_S % 24))
    return table.noted(len(weeks) * WEEK_S, 0.0)


def test_nothing_is_predicted_until_the_hours_around_have_been_seen_once() -> None:
    assert LoadOfWeek().predicted(0.0, 5 * HOUR_S) == 0.0
    day = LoadOfWeek()
    for hour in range(24):
        day = day.noted(hour * HOUR_S, 5.0)
    assert day.predicted(10 * HOUR_S, 11 * HOUR_S) == 5.0
    assert day.predicted(30 * HOUR_S, 31 * HOUR_S) == 0.0


def test_between_the_middles_of_hours_it_is_linear_and_the_most_of_a_time_counts() -> None:
    table = learned(1.0)
    at_s = WEEK_S + 8.5 * HOUR_S
    assert table.predicted(at_s, at_s) == pytest.approx(8.0)
    assert table.predicted(at_s, at_s + 0.25 * HOUR_S) == pytest.approx(8.25)
    assert table.predicted(at_s, at_s + 40 * HOUR_S) == pytest.approx(23.0)


def test_a_newer_week_counts_half() -> None:
    at_s = 2 * WEEK_S + 8.5 * HOUR_S
    assert learned(1.0, 3.0).predicted(at_s, at_s) == pytest.approx(16.0)
