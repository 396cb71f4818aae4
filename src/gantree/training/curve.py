"""The reports of an attempt over time, as a file of few points that grows with the run and stays small.

    progress/rank-0.curve.jsonl    {"step", "loss", "samples_per_s", "step_s", "at"}, a line each

A point is appended for a report if the last one is interval_s old. Of MOST_POINTS every other is dropped, and the
interval doubles; so a run of any length has between half as many points and all of them, evenly over its time.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "rank-0.curve.jsonl"
MOST_POINTS = 1000


class Curve:
    """The points of this attempt."""

    def __init__(self, folder: Path, interval_s: float) -> None:
        self._path = folder / NAME
        self._interval_s = interval_s
        self._points: list[dict[str, Any]] = []

    def add(self, point: dict[str, Any], *, is_last: bool = False) -> None:
        """Keep a report if it is time for a point; the last one in any case. Write errors are ignored."""
        if not (is_last or not self._points or self._is_due(point)):
            return
        self._points.append(point)
        with suppress(OSError):
            if len(self._points) >= MOST_POINTS:
                self._halve()
            else:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(_line(point))

    def _is_due(self, point: dict[str, Any]) -> bool:
        return not 0 <= point["at"] - self._points[-1]["at"] < self._interval_s

    def _halve(self) -> None:
        self._points = self._points[::2]
        self._interval_s *= 2
        draft = self._path.with_name(f".{NAME}.{os.getpid()}")
        draft.write_text("".join(map(_line, self._points)), encoding="utf-8")
        draft.replace(self._path)


def _line(point: dict[str, Any]) -> str:
    return json.dumps(point) + "\n"
