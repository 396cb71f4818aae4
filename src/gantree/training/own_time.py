"""Each rank's own time of a step: from the end of the last collective to the moment it enters the next one.

    progress/steps-<rank>.json    {"rank", "world_size", "at", "steps": [[number, seconds], ...]}

In synchronous training the steps of all ranks last equally long, because the collective waits for the slowest; only the
time before it tells the ranks apart. Each rank writes the NEWEST steps, at most once a second and when the process
exits, so that others can compare them step by step. In pods without a run directory the record is posted
(`posting`).
"""

import atexit
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from gantree.training.place import number
from gantree.training.run_files import progress_folder, replace_record

Write = Callable[[dict[str, Any]], None]
"""Takes the newest record of a rank, returns at once and never raises."""

EVERY_S = 1.0
"""Seconds between two writes, at least."""
NEWEST = 256
"""Steps in the file of a rank. Ranks write at different moments, so steps under 4 ms may have none in common."""


class StepTimes:
    """The newest own times of one rank. clock measures in seconds, wall gives the time since 1970."""

    def __init__(
        self,
        write: Write,
        rank: int,
        world_size: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._to = write
        self._about = {"rank": rank, "world_size": world_size}
        self._clock = clock
        self._wall = wall
        self._steps: deque[tuple[int, float]] = deque(maxlen=NEWEST)
        self._written_at: float | None = None
        self._is_written = True

    def now(self) -> float:
        """Return the time of the clock that measures, in seconds."""
        return self._clock()

    def add(self, own_s: float, step: int | None = None) -> None:
        """Record the own time of a step, in seconds, and write if EVERY_S have passed.

        step None: the one after the last. A number that is not larger than the last begins anew. Write errors and
        times that are no positive number are ignored.
        """
        if not (math.isfinite(own_s) and own_s > 0):
            return
        last = self._steps[-1][0] if self._steps else -1
        step = last + 1 if step is None else int(step)
        if step <= last:
            self._steps.clear()
        self._steps.append((step, own_s))
        self._is_written = False
        now = self._clock()
        if self._written_at is None or now - self._written_at >= EVERY_S:
            self._written_at = now
            self._write()

    def finish(self) -> None:
        """Write what is not written yet."""
        if not self._is_written:
            self._write()

    def _write(self) -> None:
        self._is_written = True
        steps = [[step, float(f"{own_s:.6g}")] for step, own_s in self._steps]
        self._to({**self._about, "at": self._wall(), "steps": steps})


class OwnStep:
    """A block of a step's own work. A block that raises is not recorded. times None: nothing is measured."""

    __slots__ = ("_from_s", "_step", "_times")

    def __init__(self, times: StepTimes | None, step: int | None) -> None:
        self._times = times
        self._step = step
        self._from_s = 0.0

    def __enter__(self) -> None:
        if self._times is not None:
            self._from_s = self._times.now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._times is not None and kind is None:
            self._times.add(self._times.now() - self._from_s, self._step)


def step_times_of(environment: Mapping[str, str]) -> StepTimes | None:
    """Return the StepTimes of an environment; None outside gantree, and for a gang of one rank."""
    rank, world_size = number(environment, "RANK", 0), number(environment, "WORLD_SIZE", 1)
    write = _write_of(environment, rank) if world_size > 1 else None
    if write is None:
        return None
    times = StepTimes(write, rank, world_size)
    atexit.register(times.finish)
    return times


def _write_of(environment: Mapping[str, str], rank: int) -> Write | None:
    """Where the record of a rank goes: its file, or the daemon's API."""
    run_dir = environment.get("GANTREE_RUN_DIR")
    if run_dir:
        folder = progress_folder(run_dir)
        return None if folder is None else steps_file(folder, rank)
    if not environment.get("GANTREE_REPORT_URL"):
        return None
    from gantree.training.posting import post_of  # noqa: PLC0415 - HTTP and TLS, for pods alone

    post = post_of(environment)
    return None if post is None else partial(post.leave, "steps")


def steps_file(folder: Path, rank: int) -> Write:
    """Return what writes the record of a rank into its file."""
    return partial(replace_record, folder / f"steps-{rank}.json")
