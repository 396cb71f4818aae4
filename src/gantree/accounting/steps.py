"""Steps of answers over time, from minutes to weeks, in UTC: which fits a period, and where each begins.

Roll-ups are minutes, hours and days (`buckets`); all other steps are whole numbers of these. A chart needs some dozen
points: with hundreds of them for each of fifty queues a page takes a second, and nobody sees more.
"""

from collections.abc import Mapping
from typing import Final, Literal, get_args

from gantree.accounting.buckets import DAY_S, HOUR_S, MINUTE_S

WEEK_S = 7 * DAY_S
Step = Literal["minute", "5min", "hour", "6h", "day", "week"]
NAMES: Final[tuple[Step, ...]] = get_args(Step)
STEPS: Final[Mapping[str, int]] = dict(
    zip(NAMES, (MINUTE_S, 5 * MINUTE_S, HOUR_S, 6 * HOUR_S, DAY_S, WEEK_S), strict=True)
)
"""Seconds of each."""
POINTS = 24
"""Of a chart, at least."""
AFTER_MONDAY_S = 3 * DAY_S
"""From a Monday, on which weeks begin as all other steps do, to the Thursday of second 0."""


def step_for(seconds: float) -> Step:
    """The widest step that a period has at least `POINTS` of."""
    return next((name for name in reversed(NAMES) if seconds / STEPS[name] >= POINTS), NAMES[0])


def begin_of(at: float, step_s: int) -> int:
    """The first second of the step of a moment."""
    return int((at + AFTER_MONDAY_S) // step_s) * step_s - AFTER_MONDAY_S
