"""Simulated clocks: one true time, and what the machines of the control plane take it for."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

EPOCH_S = 1_700_000_000.0
"""True time at which a life begins, in seconds since 1970."""


class Timeline:
    """True time, and what is to happen later. Whatever was scheduled first comes first at the same moment."""

    def __init__(self) -> None:
        self.now = EPOCH_S
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def after(self, delay_s: float, happen: Callable[[], None]) -> None:
        """Have something happen after a delay."""
        heappush(self._later, (self.now + delay_s, next(self._number), happen))

    def advance(self, by_s: float) -> None:
        """Let time pass, and what is due by then happen."""
        until = self.now + by_s
        while self._later and self._later[0][0] <= until:
            at, _, happen = heappop(self._later)
            self.now = at
            happen()
        self.now = until

    def next_in_s(self) -> float | None:
        """Seconds until the next thing happens; None if nothing is scheduled."""
        return self._later[0][0] - self.now if self._later else None


class MachineClocks:
    """The wall clock of one machine, which can be set, and its clock since boot, which cannot but may be frozen."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._ahead_s = 0.0
        self._booted_at = timeline.now - 1000.0
        self._frozen_at: float | None = None

    def wall(self) -> float:
        """What the machine takes for the time, in seconds since 1970."""
        return self._timeline.now + self._ahead_s

    def since_boot(self) -> float:
        """Seconds since the machine booted."""
        now = self._timeline.now if self._frozen_at is None else self._frozen_at
        return now - self._booted_at

    def set_wall(self, ahead_s: float) -> None:
        """Set the wall clock so far ahead of true time (behind if negative)."""
        self._ahead_s = ahead_s

    def boot(self) -> None:
        """The clock since boot begins anew. Only while no process runs on the machine."""
        self._booted_at, self._frozen_at = self._timeline.now, None

    def freeze(self) -> None:
        """The clock since boot stands still: a virtual machine that is paused and does not know."""
        self._frozen_at = self._timeline.now

    def thaw(self) -> None:
        """It goes on from where it stood."""
        if self._frozen_at is not None:
            self._booted_at += self._timeline.now - self._frozen_at
            self._frozen_at = None
