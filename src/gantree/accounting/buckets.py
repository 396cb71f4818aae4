"""Buckets of time: minutes for the last hours, hours for the last month, days for ever. Starts are whole seconds.

An amount is in exactly one row, so a sum over rows of all widths is right for every period that begins and ends where
the widest of its rows do.
"""

from collections.abc import Iterator
from typing import NamedTuple

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
MINUTES_KEPT_S = 13 * HOUR_S
HOURS_KEPT_S = 31 * DAY_S
IN_MINUTES_S = 2 * HOUR_S
"""A longer time in which nothing changed is counted in hours, which bounds the rows of one turn."""


class Bucket(NamedTuple):
    """The seconds from start on, width of them."""

    width: int
    start: int


def bucket_of(at: float, now: float) -> Bucket:
    """The bucket of a moment, as it is counted now."""
    return _bucket(at, _width_at(at, now))


def pieces(since: float, until: float, now: float) -> Iterator[tuple[Bucket, float]]:
    """The buckets of a span of time, with the seconds of each."""
    least = HOUR_S if until - since > IN_MINUTES_S else MINUTE_S
    while since < until:
        width = max(least if since < until - until % HOUR_S else MINUTE_S, _width_at(since, now))
        bucket = _bucket(since, width)
        end = min(until, bucket.start + float(width))
        yield bucket, end - since
        since = end


def minute_of(at: float) -> float:
    """The beginning of the minute of a moment."""
    return at // MINUTE_S * MINUTE_S


def _width_at(at: float, now: float) -> int:
    if at >= now - MINUTES_KEPT_S:
        return MINUTE_S
    return HOUR_S if at >= now - HOURS_KEPT_S else DAY_S


def _bucket(at: float, width: int) -> Bucket:
    return Bucket(width, int(at // width) * width)
