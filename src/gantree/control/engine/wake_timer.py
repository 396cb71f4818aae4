"""Wakes the core at its `wake_at` by one `TimePassed` event.

A bug could make the core ask for a time that has passed again and again, a tight loop; so the same time fires at most
once a second.
"""

from gantree.model.events import TimePassed

AGAIN_AFTER_S = 1.0


class WakeTimer:
    """Makes TimePassed events with ids that are unique in the journal: by epoch and number."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._rung = 0
        self._rung_for: float | None = None
        self._rung_at = 0.0

    def seconds_left(self, wake_at: float | None, now: float) -> float | None:
        """Seconds until it fires next, 0 if it is due; None where there is nothing to wait for."""
        if wake_at is None:
            return None
        if wake_at == self._rung_for:
            return max(0.0, self._rung_at + AGAIN_AFTER_S - now)
        return max(0.0, wake_at - now)

    def fire(self, wake_at: float | None, now: float) -> TimePassed | None:
        """The event, if it is due."""
        if self.seconds_left(wake_at, now) != 0.0:
            return None
        self._rung += 1
        self._rung_for, self._rung_at = wake_at, now
        return TimePassed(id=f"time-passed/{self._epoch}/{self._rung}", observed_at=now)
