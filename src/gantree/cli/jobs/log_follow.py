"""Follows the output of one job, across restarts of the daemon.

After a new start, or from another daemon that leads now, a job's output is streamed from its beginning again. What one
rank wrote comes in the order it was written, also over attempts, but ranks are interleaved as it happens. So what has
come is counted rank by rank, in lines where ranks are mixed and in bytes where there is only one, and is left out
the next time. Where the daemon dropped a part of the output meanwhile, the count means nothing behind it: the rest is
printed again rather than lost.
"""

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import typer

from gantree.api.client.client import Client
from gantree.cli.output.errors import error_text, warn
from gantree.model.errors import GantreeError, JournalError, Unreachable

RETRY_S = 0.2
"""Between two attempts to reach a daemon that does not answer."""
_DROPPED = re.compile(rb"gantree: [0-9,]+ bytes of output were dropped here")
"""As `api.streams.log_gaps.dropped` writes it; a test holds the two equal."""
_LONGEST_DROPPED = 80
REST_WITHIN_S = 10.0
"""How long the output may lag behind the end of the job."""


def write_stdout(chunks: Iterable[bytes]) -> None:
    """Write chunks to stdout as they come."""
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def follow_output(
    daemon: Client,
    job: str,
    only_rank: int | None,
    attempt: int | None = None,
    *,
    notify: Callable[[str], None] = lambda sentence: None,
    rest: Callable[[float], object] = time.sleep,
) -> Iterator[bytes]:
    """All output of a job, each part once, until it has ended, whichever daemons tell it.

    One that goes, or leads no more, is waited for, or another in its place, for ever. say is told of that, and when it
    goes on.
    """
    printed: dict[bytes, int] = {}
    new = new_lines if only_rank is None else new_bytes
    waiting = _Outage(job, notify)
    while True:
        try:
            chunks = daemon.logs(job, rank=only_rank, follow=True, attempt=attempt)
            yield from new(waiting.until_first(chunks), printed)
        except (Unreachable, JournalError) as error:
            waiting.report(error)
            rest(RETRY_S)
        else:
            return


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

    def until_first(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
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
            write_stdout(
                follow_output(self._daemon, self._job, self._only_rank, rest=self._over.wait)
            )
        except BrokenPipeError:
            return  # nobody reads any more; the job goes on all the same
        except OSError as error:
            warn(f"the output of {self._job} cannot be printed: {error.strerror}")
        except GantreeError as error:
            typer.echo(error_text(error), err=True)


def new_lines(chunks: Iterable[bytes], printed: dict[bytes, int]) -> Iterator[bytes]:
    """Whole lines of all ranks, without the first printed[rank] of each; counts them there."""
    counts: dict[bytes, int] = {}
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        fresh = []
        for line in lines:
            rank = line.partition(b"]")[0]
            counts[rank] = counts.get(rank, 0) + 1
            if _DROPPED.search(line) and counts[rank] < printed.get(rank, 0):
                printed[rank] = counts[rank] - 1
            if counts[rank] > printed.get(rank, 0):
                printed[rank] = counts[rank]
                fresh.append(line + b"\n")
        if fresh:
            yield b"".join(fresh)


def new_bytes(chunks: Iterable[bytes], printed: dict[bytes, int]) -> Iterator[bytes]:
    """The output of one rank without its first printed[b""] bytes; counts them there."""
    counts, end = 0, b""
    for chunk in chunks:
        if _DROPPED.search(end + chunk) and counts < printed.get(b"", 0):
            printed[b""] = counts
        end = chunk[-_LONGEST_DROPPED:]
        fresh = chunk[max(0, printed.get(b"", 0) - counts) :]
        counts += len(chunk)
        if fresh:
            printed[b""] = counts
            yield fresh
