"""The clock of the core: seconds since 1970 that never decrease within one journal.

The wall clock is asked once, when the clock is built; from then on time advances with a steady clock that no
operator and no time server can step (and that goes on while the machine sleeps). A wall clock that is behind
the newest event of the journal is ignored: time then goes on from that event.
"""

import time
from collections.abc import Callable


def boot_time() -> float:
    """Seconds since the machine booted, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """A clock that starts at the wall clock or at `not_before`, whichever is later."""

    def __init__(
        self,
        not_before: float,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = boot_time,
    ) -> None:
        self._steady = steady
        self._ahead_of_steady = max(wall(), not_before) - steady()

    def __call__(self) -> float:
        """The present, in seconds since 1970."""
        return self._steady() + self._ahead_of_steady
