"""Days, weeks and months of UTC, by arithmetic: no clock, no time zone. Moments are seconds since 1970.

From days to dates and back as Howard Hinnant's "chrono-compatible low-level date algorithms" do it, in the proleptic
Gregorian calendar: years begin in March, so that the leap day is their last, and repeat after 400.
"""

from functools import lru_cache
from math import inf

from gantree.policy.rules import Period

DAY_S = 86_400.0
PERIODS: tuple[Period, ...] = ("day", "week", "month")
"""The periods that end."""
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_TO_1970 = 719_468
"""Days from the first of March of the year 0 to 1970."""
_IN_400_YEARS = 146_097


def period_of(period: Period, at: float) -> tuple[float, float]:
    """Return when the period of a moment began, and when the next one does; 0 and inf for "total"."""
    if period == "total":
        return 0.0, inf
    first, end = _days_of(period, int(at // DAY_S))
    return first * DAY_S, end * DAY_S


def period_in_words(period: str, ends_at: float) -> str:
    """Return the period that ends at a moment, for people: "November 2026", "the week from 2026-11-23"."""
    if period == "month":
        year, month, _ = _date(int((ends_at - DAY_S) // DAY_S))
        return f"{MONTHS[month - 1]} {year}"
    return (
        f"the week from {utc_date(ends_at - 7 * DAY_S)}"
        if period == "week"
        else utc_date(ends_at - DAY_S)
    )


def utc_date(at: float) -> str:
    """Return the day of a moment, as 2026-11-28."""
    year, month, day = _date(int(at // DAY_S))
    return f"{year:04}-{month:02}-{day:02}"


@lru_cache(1024)
def _days_of(period: Period, day: int) -> tuple[int, int]:
    """The first day of a period and of the next one, counted from 1970."""
    if period == "day":
        return day, day + 1
    if period == "week":
        monday = day - (day + 3) % 7  # 1970 began on a Thursday
        return monday, monday + 7
    year, month, of_month = _date(day)
    first = day - of_month + 1
    return first, _day_number(year + month // 12, month % 12 + 1)


def _date(day: int) -> tuple[int, int, int]:
    """Year, month and day of the month of a day."""
    era, day_of_era = divmod(day + _TO_1970, _IN_400_YEARS)
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // (_IN_400_YEARS - 1)
    year_of_era = (day_of_era - leaps) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    of_month = day_of_year - (153 * from_march + 2) // 5 + 1
    month = from_march + 3 if from_march < 10 else from_march - 9
    return year_of_era + era * 400 + (month <= 2), month, of_month


def _day_number(year: int, month: int) -> int:
    """The first day of a month, counted from 1970."""
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _IN_400_YEARS + day_of_era - _TO_1970


def utc_minute(at: float) -> str:
    """Return the minute of a moment, as 2026-11-28 07:45 UTC."""
    minute = int(at % DAY_S // 60)
    return f"{utc_date(at)} {minute // 60:02}:{minute % 60:02} UTC"
