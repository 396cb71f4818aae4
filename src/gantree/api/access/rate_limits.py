"""Rate limits: a token bucket for each caller."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from gantree.model.errors import TooOften

MOST_CALLERS = 10_000
"""Buckets that are kept; the least recently used is dropped, and full if its caller returns."""


@dataclass(slots=True)
class _Bucket:
    drops: float
    at: float


class RateLimits:
    """per_s requests a second on the average, burst at once. Used by one thread."""

    def __init__(
        self, per_s: float, burst: float | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = max(1.0, per_s if burst is None else burst)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def consume(self, caller: str) -> None:
        """One request. Raises TooOften, and then nothing was taken."""
        now = self._clock()
        bucket = self._buckets.setdefault(caller, _Bucket(self._burst, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        bucket.drops = min(self._burst, bucket.drops + (now - bucket.at) * self._per_s)
        bucket.at = now
        if bucket.drops < 1.0:
            after_s = (1.0 - bucket.drops) / self._per_s
            raise TooOften(
                f"{caller} may make {self._per_s:g} requests a second; try again in {after_s:.2g} s"
            )
        bucket.drops -= 1.0
