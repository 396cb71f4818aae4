"""Handles SIGTERM and SIGINT: an orderly stop, or an immediate exit while nothing needs to be stopped.

A handler is there the whole time. Where it is taken away and set again, a signal that came just before that, and of
which the event loop has not heard yet, is lost.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Obeys them on the event loop, which calls stop for each."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._ends_at_once = False

    def obey(self) -> None:
        """From now on. Call it on the event loop."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._came, number)

    @contextmanager
    def end_at_once(self) -> Iterator[None]:
        """Within this block the signals end the process at once."""
        self._ends_at_once = True
        try:
            yield
        finally:
            self._ends_at_once = False

    def _came(self, number: signal.Signals) -> None:
        if self._ends_at_once:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.raise_signal(number)
        else:
            self._stop()
