"""Progress reports of rank 0: one small file in the run directory, replaced at most once a second.

    progress/rank-0.json    {"step", "loss", "samples_per_s", "step_s", "at"}

Some of the reports are kept in a second file, the curve of the attempt (`curve`). In pods without a run directory the
record is posted (`posting`), and there is no curve.

The file is not synced, so that a report delays no step; a machine failure may lose the last one. The last report is
written when the process exits. step_s is the median of the last steps, so checkpoints and pauses do not affect it.
"""

import atexit
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, SupportsFloat

from gantree.training.curve import Curve
from gantree.training.run_files import progress_folder, replace_record

Write = Callable[[dict[str, Any]], None]
"""Takes the newest report, returns at once and never raises."""
EVERY_S = 1.0
"""Seconds between two writes, at least."""
STEPS_LOOKED_AT = 32


class Reporter:
    """The reporter of rank 0. `clock` measures steps in seconds, `wall` gives the time since 1970."""

    def __init__(
        self,
        write: Write,
        curve: Curve | None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._to, self._curve = write, curve
        self._clock = clock
        self._wall = wall
        self._written_at: float | None = None
        self._last: tuple[int, float] | None = None
        self._step_s: deque[float] = deque(maxlen=STEPS_LOOKED_AT)
        self._unwritten: tuple[int, float | None, float | None] | None = None

    def report(
        self, step: int, loss: SupportsFloat | None, samples_per_s: SupportsFloat | None
    ) -> None:
        """Record a step, and write it if EVERY_S have passed since the last write."""
        now = self._clock()
        self._measure(step, now)
        if self._written_at is not None and now - self._written_at < EVERY_S:
            # a tensor is not kept: it would keep its graph, and reading it would wait for the device
            self._unwritten = (step, _plain(loss), _plain(samples_per_s))
            return
        self._written_at = now
        self._write(step, _number(loss), _number(samples_per_s))

    def finish(self) -> None:
        """Write the last report if it is not written yet."""
        if self._unwritten is not None:
            self._write(*self._unwritten, is_last=True)

    def _measure(self, step: int, now: float) -> None:
        """Measure seconds per step since the last report; reports without progress do not count."""
        if self._last is not None and step > self._last[0]:
            self._step_s.append((now - self._last[1]) / (step - self._last[0]))
        if self._last is None or step != self._last[0]:
            self._last = (step, now)

    def _write(
        self,
        step: int,
        loss: float | None,
        samples_per_s: float | None,
        *,
        is_last: bool = False,
    ) -> None:
        self._unwritten = None
        record = {
            "step": int(step),
            "loss": loss,
            "samples_per_s": samples_per_s,
            "step_s": median(self._step_s) if self._step_s else None,
            "at": self._wall(),
        }
        self._to(record)
        if self._curve is not None:
            self._curve.add(record, is_last=is_last)


def _plain(value: SupportsFloat | None) -> float | None:
    """Return a plain number; None for a tensor, which is costly to read."""
    return float(value) if isinstance(value, (int, float)) else None


def _number(value: SupportsFloat | None) -> float | None:
    """Return a number; a tensor is detached from its graph first."""
    detach = getattr(value, "detach", None)
    return None if value is None else float(value if detach is None else detach())


def reporter_of(environment: Mapping[str, str]) -> Reporter | None:
    """Return the Reporter of an environment; None outside gantree and on ranks other than 0."""
    if environment.get("RANK", "0") != "0":
        return None
    run_dir = environment.get("GANTREE_RUN_DIR")
    reporter = _in_files(run_dir) if run_dir else _posted(environment)
    if reporter is not None:
        atexit.register(reporter.finish)
    return reporter


def _in_files(run_dir: str) -> Reporter | None:
    folder = progress_folder(run_dir)
    return None if folder is None else Reporter(*files_in(folder))


def files_in(folder: Path) -> tuple[Write, Curve]:
    """Return what writes the newest report into a folder, and the curve there."""
    return partial(replace_record, folder / "rank-0.json"), Curve(folder, EVERY_S)


def _posted(environment: Mapping[str, str]) -> Reporter | None:
    if not environment.get("GANTREE_REPORT_URL"):
        return None
    from gantree.training.posting import post_of  # noqa: PLC0415 - HTTP and TLS, for pods alone

    post = post_of(environment)
    return None if post is None else Reporter(partial(post.leave, "progress"), None)
