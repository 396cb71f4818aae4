"""Progress reports of rank 0: one small file in the run directory, replaced at most once a second.

    progress/rank-0.json    {"step", "loss", "samples_per_s", "step_s", "at"}

Some of the reports are kept in a second file, the curve of the attempt (`curve`).

The file is not synced, so that a report delays no step; a machine failure may lose the last one. The last report is
written when the process exits. step_s is the median of the last steps, so checkpoints and pauses do not affect it.
"""

import atexit
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import SupportsFloat

from gantree.training.curve import Curve

EVERY_S = 1.0
"""Seconds between two writes, at least."""
STEPS_LOOKED_AT = 32


class Reporter:
    """The reporter of rank 0. `clock` measures steps in seconds, `wall` gives the time since 1970."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._wall = wall
        self._written_at: float | None = None
        self._last: tuple[int, float] | None = None
        self._step_s: deque[float] = deque(maxlen=STEPS_LOOKED_AT)
        self._unwritten: tuple[int, float | None, float | None] | None = None
        self._curve = Curve(folder, EVERY_S)

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
        temporary = self._folder / f".rank-0.json.{os.getpid()}"
        with suppress(OSError):
            temporary.write_text(json.dumps(record), encoding="utf-8")
            temporary.replace(self._folder / "rank-0.json")
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
    run_dir = environment.get("GANTREE_RUN_DIR")
    if not run_dir or environment.get("RANK", "0") != "0":
        return None
    folder = Path(run_dir) / "progress"
    if not folder.is_dir():
        return None
    reporter = Reporter(folder)
    atexit.register(reporter.finish)
    return reporter
