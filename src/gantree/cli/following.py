"""The output of one job, followed over the ends and starts of the daemon.

After a new start the daemon streams a job's output from its beginning again. What one rank wrote comes in the order
it was written, also over attempts, but ranks are interleaved as it happens. So what has been printed is counted
rank by rank, in lines where ranks are mixed and in bytes where there is only one, and is left out the next time.
"""

import threading
from collections.abc import Iterable, Iterator

import typer

from gantree.api.client import Client
from gantree.cli.errors import told, warn
from gantree.cli.logs import pour
from gantree.model.errors import GantreeError, JournalError, Unreachable

RETRY_S = 0.2
"""Between two attempts to reach a daemon that has gone."""
REST_WITHIN_S = 10.0
"""How long the output may lag behind the end of the job."""


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
        printed: dict[bytes, int] = {}
        new = new_lines if self._only_rank is None else new_bytes
        complete = False
        while not complete:
            try:
                chunks = self._daemon.logs(self._job, rank=self._only_rank, follow=True)
                pour(new(chunks, printed))
                complete = self._over.wait(
                    RETRY_S
                )  # else it was the daemon that ended, not the job
            except BrokenPipeError:
                return  # nobody reads any more; the job goes on all the same
            except OSError as error:
                warn(f"the output of {self._job} cannot be printed: {error.strerror}")
                return
            except (Unreachable, JournalError):
                self._over.wait(RETRY_S)
            except GantreeError as error:
                typer.echo(told(error), err=True)
                return


def new_lines(chunks: Iterable[bytes], printed: dict[bytes, int]) -> Iterator[bytes]:
    """Whole lines of all ranks, without the first printed[rank] of each; counts them there."""
    seen: dict[bytes, int] = {}
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        fresh = []
        for line in lines:
            rank = line.partition(b"]")[0]
            seen[rank] = seen.get(rank, 0) + 1
            if seen[rank] > printed.get(rank, 0):
                printed[rank] = seen[rank]
                fresh.append(line + b"\n")
        if fresh:
            yield b"".join(fresh)


def new_bytes(chunks: Iterable[bytes], printed: dict[bytes, int]) -> Iterator[bytes]:
    """The output of one rank without its first printed[b""] bytes; counts them there."""
    seen = 0
    for chunk in chunks:
        fresh = chunk[max(0, printed.get(b"", 0) - seen) :]
        seen += len(chunk)
        if fresh:
            printed[b""] = seen
            yield fresh
