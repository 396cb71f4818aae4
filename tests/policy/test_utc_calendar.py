"""Days, weeks and months of UTC, held equal to Python's calendar."""

from datetime import UTC, date, datetime, timedelta
from math import inf

from hypothesis import example, given
from hypothesis import strategies as st

from gantree.policy.utc_calendar import DAY_S, period_in_words, period_of, utc_date

DAYS = st.dates(date(1970, 1, 1), date(2400, 12, 31))


def at(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


@given(DAYS, st.floats(0.0, DAY_S, exclude_max=True))
@example(date(2000, 2, 29), 0.0)
@example(date(2100, 2, 28), DAY_S - 1.0)
def test_periods_are_those_of_the_calendar(day: date, seconds: float) -> None:
    moment, tomorrow = at(day) + seconds, day + timedelta(1)
    monday = day - timedelta(day.weekday())
    first = day.replace(day=1)
    following = (first + timedelta(31)).replace(day=1)
    assert utc_date(moment) == day.isoformat()
    assert period_of("day", moment) == (at(day), at(tomorrow))
    assert period_of("week", moment) == (at(monday), at(monday + timedelta(7)))
    assert period_of("month", moment) == (at(first), at(following))
    assert period_of("total", moment) == (0.0, inf)
    assert period_in_words("month", at(following)) == f"{first:%B %Y}"
    assert period_in_words("week", at(monday + timedelta(7))) == f"the week from {monday}"
    assert period_in_words("day", at(tomorrow)) == str(day)
