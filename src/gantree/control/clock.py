"""The clock of the core: seconds since 1970 that never decrease within one journal.

The wall clock is asked once, when the clock is built; from then on time advances with a steady clock that no
operator and no time server can step (and that goes on while the machine sleeps). A wall clock that is behind
the newest event of the journal is ignored: time then goes on from that event.
"""

import logging
import time
from collections.abc import Callable

from gantree.model.errors import Conflict

DAY_S = 86400.0
LONGEST_GAP_S = 30 * DAY_S
"""The wall clock is taken to be wrong where it is further than this from the newest event of the journal."""

log = logging.getLogger(__name__)


def boot_time() -> float:
    """Seconds since the machine booted, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def check_wall_clock(newest: float, wall: float) -> None:
    """Raise Conflict where the wall clock is far ahead of the newest event (0: none), for time never goes back.

    One that is far behind is only told of: the journal has taken a wrong clock for right already.
    """
    days = abs(wall - newest) / DAY_S
    if newest > 0 and wall > newest + LONGEST_GAP_S:
        raise Conflict(
            f"the clock of this machine is {days:.0f} days ahead of the newest event of the journal, and what it"
            " says is kept for ever. Set the clock; or, if no daemon has run for so long, start with --accept-clock"
        )
    if wall < newest - LONGEST_GAP_S:
        log.warning(
            "the newest event of the journal is %.0f days ahead of the clock of this machine: time goes on from there",
            days,
        )


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
