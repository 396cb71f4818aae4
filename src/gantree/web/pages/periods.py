"""Periods until now that pages of use over time show."""

from typing import Final, Literal

Period = Literal["3h", "24h", "7d", "30d", "1y"]
HOUR_S, DAY_S = 3600.0, 86_400.0
PERIODS: Final[dict[str, tuple[str, float, str]]] = {
    "3h": ("3 hours", 3 * HOUR_S, "minute"),
    "24h": ("24 hours", DAY_S, "hour"),
    "7d": ("7 days", 7 * DAY_S, "hour"),
    "30d": ("30 days", 30 * DAY_S, "day"),
    "1y": ("1 year", 365 * DAY_S, "day"),
}
"""Name, seconds and step of each."""


def choices() -> list[tuple[str, str]]:
    """(key, name) of each."""
    return [(key, name) for key, (name, _, _) in PERIODS.items()]
