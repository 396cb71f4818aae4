"""Follows the output of one job, across restarts of the daemon.

After a new start, or from another daemon that leads now, a job's output is streamed from its beginning again. Each
piece says which bytes of which log it is, so what has come is left out, also where the daemon dropped a part of the
log meanwhile.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import typer

from gantree.api.client.client import Client, Json
from gantree.api.client.requests import LogOptions
from gantree.api.streams.logs.pieces import Form, Piece, as_lines, as_written, data_of
from gantree.cli.output.errors import error_text, warn
from gantree.model.errors import GantreeError, JournalError, Unreachable

RETRY_S = 0.2
"""Between two attempts to reach a daemon that does not answer."""
REST_WITHIN_S = 10.0
"""How long the output may lag behind the end of the job."""
T = TypeVar("T")


def write_stdout(chunks: Iterable[bytes]) -> None:
    """Write chunks to stdout as they come."""
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def follow_output(
    daemon: Client,
    job: str,
    options: LogOptions,
    *,
    notify: Callable[[str], None] = lambda sentence: None,
    rest: Callable[[float], object] = time.sleep,
) -> Iterator[Piece]:
    """The output of a job, each byte once, until it has ended, whichever daemons send it.

    One that goes, or leads no more, is waited for, or another in its place, for ever. notify is called with that, and
    when it goes on.
    """
    seen = Seen()
    waiting = _Outage(job, notify)
    while True:
        try:
            rows = daemon.log_pieces(job, **options, follow=True)
            yield from seen.new(pieces_of(waiting.until_first(rows)))
        except (Unreachable, JournalError) as error:
            waiting.report(error)
            rest(RETRY_S)
        else:
            return


def pieces_of(rows: Iterable[Json]) -> Iterator[Piece]:
    """The pieces that a daemon sent as rows. Raises Unreachable for what are none."""
    for row in rows:
        try:
            yield Piece(
                int(row["attempt"]),
                int(row["rank"]),
                int(row["start"]),
                int(row["end"]),
                float(row["at"]),
                data_of(row),
                notice=bool(row.get("notice", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Unreachable(
                f"the output has a row that is no piece of a log ({row!r:.60}): the server is no gantree daemon"
            ) from None


def form_of(options: LogOptions, *, times: bool = False) -> Form:
    """How output is printed: one rank as it was written, or whole lines."""
    rank = options.get("rank")
    if rank is not None and options.get("grep") is None and not times:
        return as_written
    return as_lines(ranks=rank is None, times=times)


class Seen:
    """Which bytes of each log have come."""

    def __init__(self) -> None:
        self._end: dict[tuple[int, int], int] = {}

    def new(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """What of these has not come yet. A piece that has come in part is cut."""
        for piece in pieces:
            log = piece.attempt, piece.rank
            seen = self._end.get(log, -1)
            if piece.end <= seen:
                continue
            self._end[log] = piece.end
            if piece.start < seen and not piece.notice:
                yield replace(piece, start=seen, data=piece.data[seen - piece.start :])
            else:
                yield piece


class _Outage:
    """Says what is waited for, once for each cause, and that it is over."""

    def __init__(self, job: str, notify: Callable[[str], None]) -> None:
        self._job, self._notify = job, notify
        self._reported: str | None = None

    def report(self, error: GantreeError) -> None:
        if self._reported is None:
            self._notify(
                f"{error}; waiting for a daemon. Ctrl-C stops waiting; {self._job} continues"
            )
        elif str(error) != self._reported:
            self._notify(f"still waiting: {error}")
        self._reported = str(error)

    def until_first(self, chunks: Iterable[T]) -> Iterator[T]:
        """What comes; the first of it ends the outage."""
        for chunk in chunks:
            if self._reported is not None:
                self._notify(f"the output of {self._job} continues")
            self._reported = None
            yield chunk


class Output:
    """Prints a job's output from a thread of its own, so that the main thread can be interrupted."""

    def __init__(self, daemon: Client, job: str, only_rank: int | None) -> None:
        self._daemon, self._job, self._only_rank = daemon, job, only_rank
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """The job has ended: wait until the rest is printed."""
        self._over.set()
        self._thread.join(REST_WITHIN_S)

    def _print(self) -> None:
        try:
            options: LogOptions = {"rank": self._only_rank}
            pieces = follow_output(self._daemon, self._job, options, rest=self._over.wait)
            write_stdout(map(form_of(options), pieces))
        except BrokenPipeError:
            return  # nobody reads any more; the job goes on all the same
        except OSError as error:
            warn(f"the output of {self._job} cannot be printed: {error.strerror}")
        except GantreeError as error:
            typer.echo(error_text(error), err=True)
