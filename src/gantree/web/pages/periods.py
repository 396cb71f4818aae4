"""Periods until now that pages of use over time show, in steps of which a chart has some dozen (`steps.step_for`)."""

from typing import Final, Literal

Period = Literal["3h", "24h", "7d", "30d", "1y"]
HOUR_S, DAY_S = 3600.0, 86_400.0
PERIODS: Final[dict[str, tuple[str, float]]] = {
    "3h": ("3 hours", 3 * HOUR_S),
    "24h": ("24 hours", DAY_S),
    "7d": ("7 days", 7 * DAY_S),
    "30d": ("30 days", 30 * DAY_S),
    "1y": ("1 year", 365 * DAY_S),
}
"""Name and seconds of each."""


def choices() -> list[tuple[str, str]]:
    """(key, name) of each."""
    return [(key, name) for key, (name, _) in PERIODS.items()]
