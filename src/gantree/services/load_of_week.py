"""What a service needed in each hour of the week, as earlier weeks tell: the prediction of `predict: true`.

168 numbers a service: of each hour of the week the mean of the replicas that the load asked for, newer weeks counting
more. Between the middles of two hours the prediction is linear. A week is from Thursday 00:00 UTC, as second 0 is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

HOUR_S = 3600.0
HOURS = 168
NEWEST_COUNTS = 0.5
"""How much the newest week counts against all before it."""


@dataclass(frozen=True, slots=True)
class LoadOfWeek:
    """By hour of the week the replicas that were needed (None: not known), and sum and count of the current hour."""

    needed: tuple[float | None, ...] = (None,) * HOURS
    hour: int = -1
    sum: float = 0.0
    samples: int = 0

    def noted(self, at_s: float, needed: float) -> "LoadOfWeek":
        """Return the table with what the load of a moment asked for; moments come in order."""
        hour = int(at_s // HOUR_S)
        if hour == self.hour:
            return replace(self, sum=self.sum + needed, samples=self.samples + 1)
        return LoadOfWeek(self._with_the_hour(), hour, needed, 1)

    def _with_the_hour(self) -> tuple[float | None, ...]:
        if not self.samples:
            return self.needed
        place, mean = self.hour % HOURS, self.sum / self.samples
        before = self.needed[place]
        mean = mean if before is None else before + NEWEST_COUNTS * (mean - before)
        return (*self.needed[:place], mean, *self.needed[place + 1 :])

    def predicted(self, from_s: float, to_s: float) -> float:
        """Return the most that the load needs between two moments as earlier weeks tell; 0 where they tell nothing."""
        middles = [hour for hour in _middles(from_s, to_s) if from_s < hour < to_s]
        return max(self._at(at_s) for at_s in (from_s, *middles, to_s))

    def _at(self, at_s: float) -> float:
        before_s, after_s = _around(at_s)
        before, after = self._of_hour(before_s), self._of_hour(after_s)
        if before is None or after is None:
            return 0.0
        return before + (after - before) * (at_s - before_s) / HOUR_S

    def _of_hour(self, at_s: float) -> float | None:
        return self.needed[int(at_s // HOUR_S) % HOURS]


def _around(at_s: float) -> tuple[float, float]:
    """The middles of hours before and after a moment."""
    before_s = ((at_s - HOUR_S / 2) // HOUR_S) * HOUR_S + HOUR_S / 2
    return before_s, before_s + HOUR_S


def _middles(from_s: float, to_s: float) -> Sequence[float]:
    first = _around(from_s)[1]
    return [first + HOUR_S * n for n in range(int((to_s - from_s) // HOUR_S) + 1)]
