"""The watchdog: ends a daemon whose engine hangs.

The engine is the thread that the controller lives on. The lease is kept by another one, so that no long turn loses it;
a leader whose engine hangs would keep it for ever, and nothing would be decided by anybody. So the engine beats: when
it begins and ends what it is asked for, after each turn, and every thousand facts while it folds the journal. A leader
steps twenty times a second also when nothing happens, so silence tells of an event loop that hangs, too.

An honest silence can be long: a walk over 50,000 waiting jobs takes tens of seconds. But it computes meanwhile, and
what hangs mostly waits: for a row that another session has locked, a server that was stopped, a disk. So silence in
which the engine's thread uses the processor counts for a tenth, and a loop without end is found all the same. So does
all silence before it has recovered: a cluster of ten thousand nodes takes its time to be listed. And only what the
watchdog saw pass counts, two seconds for each look at most: whoever was stopped for an hour was not silent.

A thread cannot be ended from outside, and what it hangs in may still go through. So the term is over first: from then
on nothing is written, ordered or started in its name. Then the process says what all its threads do, and ends.
"""

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gantree.control.clock import boot_time
from gantree.control.engine.leadership import Term

STALL_S = 60.0
"""So long the engine may wait for something, where nothing else is said: longer than databases, disks and machines
stall that are worth waiting for."""
SHORTEST_STALL_S = 2.0
COMPUTING = 0.1
"""So much counts of a silence in which it computes. The longest turn that was ever measured computed for a minute."""
BUSY = 0.01
"""Who computes gets this part of a processor on the most crowded machine; who waits needs less to look up at times."""
LOOK_EVERY_S = 1.0
EXIT_STALLED = 70
"""The exit status of a daemon whose engine hung: what sysexits.h calls an internal software error."""
LAST_WORDS_S = 5.0
"""So long it may take to say why: the log may be what hangs."""

log = logging.getLogger(__name__)


class Pulse:
    """Beaten by the engine, looked at by one other thread."""

    def __init__(
        self, steady: Callable[[], float] = boot_time, cpu: Callable[[], float] | None = None
    ) -> None:
        """cpu returns the CPU time of the engine's thread in seconds; None: that of the system."""
        self.silent_s = self.counted_s = 0.0
        self.is_stepping, self.is_recovering = True, False
        self._steady, self._cpu = steady, cpu or self._cpu_of_engine
        self._beats = self._seen = 0
        self._is_at_work = False
        self._clock: int | None = None
        self._looked_at, self._used_s = steady(), 0.0

    def beat(self) -> None:
        """The engine goes on. Called on its thread."""
        if self._clock is None:
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._beats += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The engine does what it was asked for within this. Called on its thread."""
        self._is_at_work = True
        self.beat()
        try:
            yield
        finally:
            self._is_at_work = False
            self.beat()

    def silence_s(self) -> float:
        """How much its silence counts now, in seconds. Nobody expects anything of a loop that was stopped."""
        elapsed_s, used_s = self._since_last_look()
        is_expected = self.is_stepping or self._is_at_work
        is_computing = self.is_recovering or used_s >= BUSY * elapsed_s
        if self._beats != self._seen or not is_expected:
            self._seen, self.silent_s, self.counted_s = self._beats, 0.0, 0.0
        else:
            self.silent_s += elapsed_s
            self.counted_s += elapsed_s * (COMPUTING if is_computing else 1.0)
        return self.counted_s

    def _since_last_look(self) -> tuple[float, float]:
        """Seconds, two looks' at most, and processor time that the engine used meanwhile."""
        looked_at, used_s = self._looked_at, self._used_s
        self._looked_at, self._used_s = self._steady(), self._cpu()
        return min(self._looked_at - looked_at, 2 * LOOK_EVERY_S), self._used_s - used_s

    def _cpu_of_engine(self) -> float:
        """None yet, or all there will be, while there is no such thread."""
        try:
            return 0.0 if self._clock is None else time.clock_gettime(self._clock)
        except OSError:  # it has ended
            return self._used_s


class Watchdog:
    """Ends the process once the engine has been silent for too long in a term. A thread of its own, within `with`."""

    def __init__(
        self, pulse: Pulse, term: Term, stall_s: float, end: Callable[[int], object] = os._exit
    ) -> None:
        self._pulse, self._term, self._stall_s, self._end = pulse, term, stall_s, end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(min(LOOK_EVERY_S, self._stall_s / 4)):
            if self._pulse.silence_s() >= self._stall_s:
                self._bite()
                return

    def _bite(self) -> None:
        """In this order, whatever the last part takes."""
        self._term.end()
        latest = threading.Timer(LAST_WORDS_S, self._end, [EXIT_STALLED])
        latest.daemon = True
        latest.start()
        try:
            log.critical(
                "the engine hangs: it has not gone on for %.0f s (--stall). Epoch %d is over, and this process"
                " ends now. Its threads:\n%s",
                self._pulse.silent_s, self._term.epoch, stacks(),
            )  # fmt: skip
        finally:
            self._end(EXIT_STALLED)


def stacks() -> str:
    """What all threads do at this moment, by name."""
    name_of = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"Thread {name_of.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
