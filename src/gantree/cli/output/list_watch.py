"""`--watch`: a table again and again; redrawn in place on a terminal, printed at each change elsewhere.

The table goes on when the daemon does: while none answers, the last one is shown. Nothing here is about jobs.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from gantree.cli.output.printing import moment
from gantree.model.errors import JournalError, Unreachable

WATCH_S = 2.0
LOAD = 5
"""A list that takes long is read so rarely that the daemon spends at most one part in so many on it."""
OPTION = "--watch"
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, TO_LINE_END, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
TERMINATED = 128 + signal.SIGTERM

Lines = Callable[[float], list[str]]
"""The lines of a table as of a time in seconds since 1970."""
Read = Callable[[int | None], Lines]
"""Reads a table anew, at most so many rows of it; None: all."""


WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="[SECONDS]",
        min=0.1,
        max=86_400,
        help=f"Repeat every so many seconds ({WATCH_S:g}); on a pipe, print each change.",
    ),
]


class WatchCommand(TyperCommand):
    """A command whose --watch may stand alone or before a number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; --watch alone has its default."""
        return super().parse_args(ctx, list(_with_seconds(args)))


def _with_seconds(words: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(words, 1):
        is_alone = word == OPTION and not "".join(words[number : number + 1])[:1].isdigit()
        yield f"{OPTION}={WATCH_S:g}" if is_alone else word


def watch(read: Read, every_s: float) -> NoReturn:
    """Show a table until Ctrl-C. Raises what the daemon raises, but once a table was shown no outage."""
    table = _Table(read)
    if sys.stdout.isatty():
        _redraw(table, every_s)
    _print_changes(table, every_s)


class _Table:
    """The newest table. outage is why it could not be read anew; took_s how long the reading took."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lines: Lines | None = None
        self.outage = ""
        self.took_s = 0.0

    def refresh(self, most: int | None = None) -> None:
        """Read it anew; keep the old one if no daemon answers."""
        began = time.monotonic()
        try:
            self._lines, self.outage = self._read(most), ""
        except (Unreachable, JournalError) as error:
            if self._lines is None:
                raise
            self.outage = str(error)
        self.took_s = time.monotonic() - began

    def lines(self, now: float) -> list[str]:
        return [] if self._lines is None else self._lines(now)


def _print_changes(table: _Table, every_s: float) -> NoReturn:
    """Print the table whenever it changes otherwise than by the clock."""
    began, shown, was_out = time.time(), None, False
    while True:
        table.refresh()
        if table.outage and not was_out:
            typer.echo(f"gantree: {table.outage}; waiting for a daemon", err=True)
        was_out = bool(table.outage)
        as_of_then = table.lines(began)
        if as_of_then != shown:
            typer.echo("\n".join([*([] if shown is None else [""]), *table.lines(time.time())]))
        shown = as_of_then
        time.sleep(max(every_s, LOAD * table.took_s))


def _redraw(table: _Table, every_s: float) -> NoReturn:
    """Draw as much of the table as fits, in place; what was drawn last is on the terminal afterwards."""
    table.refresh(_size()[1] - 3)  # an error belongs on the screen where the command was typed
    with _other_screen(table):
        while True:
            width, height = _size()
            frame = [_title(table, every_s), *table.lines(time.time())][: height - 1]
            drawn = "".join(f"{line[:width]}{TO_LINE_END}\n" for line in frame)
            sys.stdout.write(HOME + drawn + BELOW)
            sys.stdout.flush()
            time.sleep(max(every_s, LOAD * table.took_s))
            table.refresh(height - 3)  # beside title, heads, and the line of the cursor


def _title(table: _Table, every_s: float) -> str:
    title = f"{moment(time.time())}, every {every_s:g} s, Ctrl-C ends it"
    return f"{title}; waiting: {table.outage}" if table.outage else title


def _size() -> tuple[int, int]:
    """Columns and lines, at least so many that there is something to see; 80 x 24 where the terminal has no size."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return max(20, size.columns or 80), max(4, size.lines or 24)


@contextmanager
def _other_screen(table: _Table) -> Iterator[None]:
    """The terminal's second screen. At the end, by SIGTERM too, the first is back and has the last table."""
    before = signal.signal(signal.SIGTERM, _end)
    sys.stdout.write(ENTER_SCREEN)
    try:
        yield
    finally:
        sys.stdout.write(LEAVE_SCREEN)
        width, height = _size()
        last = table.lines(time.time())[: height - 1]
        sys.stdout.write("".join(f"{line[:width]}\n" for line in last))
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)
