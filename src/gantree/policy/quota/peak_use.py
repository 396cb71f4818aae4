"""The most that was used within a window of time, of an amount that changes by steps.

Moments at which a level was left are rounded up to a sixtieth of the window: an hour is kept to the minute. So a peak
is held up to a minute too long, and no more than 61 levels are remembered, whatever comes and goes.
"""

from dataclasses import dataclass, field
from math import ceil

STEPS = 60
"""Parts of a window that are told apart."""


@dataclass(slots=True)
class PeakUse:
    """A level and the levels that it had within the window: past is (left at, level), the highest and oldest first."""

    window_s: float
    level: int
    past: list[tuple[float, int]] = field(default_factory=list)

    def note(self, level: int, at: float) -> None:
        """Change the level, in whole units, at a moment in seconds that is not before the last one."""
        if level == self.level:
            return
        before, self.level = self.level, level
        if level < before:
            self.leave(before, at)
        while self.past and self.past[-1][1] <= level:
            self.past.pop()
        self.past = [each for each in self.past if each[0] + self.window_s > at]

    def leave(self, level: int, at: float) -> None:
        """Count a level as one that was left at a moment."""
        step_s = self.window_s / STEPS
        until = ceil(at / step_s) * step_s
        while self.past and self.past[-1][1] <= level:
            self.past.pop()
        if not self.past or self.past[-1][0] < until:
            self.past.append((until, level))

    def most(self, now: float) -> int:
        """Return the highest level of the window that ends now."""
        return max(
            [level for left, level in self.past if left + self.window_s > now] + [self.level]
        )

    def falls_below(self, level: int, now: float) -> float | None:
        """Return when the highest level is below one if nothing more is used; None if that is now, or never."""
        if self.level >= level:
            return None
        moments = [left + self.window_s for left, past in self.past if past >= level]
        return moments[-1] if moments and moments[-1] > now else None
