"""A progress bar on stderr for work that takes longer than a second, if stderr is a terminal."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_S = 1.0
"""Work shorter than this shows nothing."""

Advance = Callable[[int, int], None]
"""Called with (done, total) as the work goes on."""


class _Bar:
    """Starts Rich's bar once the work has taken a second: importing Rich takes a tenth of one."""

    def __init__(self, title: str, clock: Callable[[], float]) -> None:
        self._title, self._clock = title, clock
        self._started_at = clock()
        self._bar: Progress | None = None

    def advance(self, done: int, total: int) -> None:
        if self._bar is None and self._clock() - self._started_at >= QUIET_S:
            self._bar = _rich_bar()
            self._bar.start()
            self._bar.add_task(self._title, total=total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _rich_bar() -> "Progress":
    from rich.console import Console  # noqa: PLC0415  # see _Bar
    from rich.progress import Progress  # noqa: PLC0415  # see _Bar

    return Progress(console=Console(stderr=True), transient=True)


@contextmanager
def busy(title: str, quiet_s: float = QUIET_S) -> Iterator[None]:
    """Show that one long step, which cannot say how far it is, goes on; only on a terminal and after a second."""
    if not sys.stderr.isatty():
        yield
        return
    done, bars = threading.Event(), list["Progress"]()

    def show() -> None:
        if not done.wait(quiet_s):
            bars.append(bar := _rich_bar())
            bar.add_task(title, total=None)
            bar.start()

    shower = threading.Thread(target=show, daemon=True)
    shower.start()
    try:
        yield
    finally:
        done.set()
        shower.join()
        for bar in bars:
            bar.stop()


@contextmanager
def progress(title: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Advance]:
    """Yield a function to report (done, total) to; it draws only on a terminal and after one second."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    bar = _Bar(title, clock)
    try:
        yield bar.advance
    finally:
        bar.close()
