"""The rate of a counter over a window, such that a jump, a reset or a gap is no rate.

A counter of errors is read every quarter of a minute. What counts is the median of its newest WINDOW rates: it is above
a limit only if more than half of them are, so one burst (a cable that is moved, a driver that is loaded) says nothing.
A counter that falls began anew: that interval is left out. Intervals that were not read count as quiet ones.
"""

from dataclasses import dataclass

WINDOW = 5
_MIDDLE = WINDOW // 2


@dataclass(slots=True)
class Counter:
    """The last reading of a counter, and its newest rates, the oldest first; () if all are zero."""

    value: float
    at: float
    rates: tuple[float, ...] = ()

    def read(self, value: float, at: float) -> float:
        """Take a reading at a time in seconds; return the median rate per second of the window."""
        took_s, grew = at - self.at, value - self.value
        if took_s <= 0:
            return self.median
        self.value, self.at = value, at
        if grew > 0:
            self.rates = (*self.rates, grew / took_s)[-WINDOW:]
        elif grew == 0 and self.rates:
            self.rates = (*self.rates, 0.0)[-WINDOW:]
            self.rates = self.rates if any(self.rates) else ()
        return self.median

    @property
    def median(self) -> float:
        """The median rate per second; what the window lacks counts as zero."""
        padded = sorted((*self.rates, *(0.0,) * (WINDOW - len(self.rates))))
        return padded[_MIDDLE]


class Counters:
    """Counters by whatever names them; those of what vanished are dropped by `keep`."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, ...], Counter] = {}

    def rate(self, key: tuple[str, ...], value: float, at: float) -> float:
        """The median rate per second of a counter that reads so at a time in seconds; 0 at its first readings."""
        counter = self._of.get(key)
        if counter is None:
            self._of[key] = Counter(value, at)
            return 0.0
        return counter.read(value, at)

    def keep(self, nodes: frozenset[str]) -> None:
        """Forget counters of which the first name is of none of these nodes."""
        for key in [key for key in self._of if key[0] not in nodes]:
            del self._of[key]
