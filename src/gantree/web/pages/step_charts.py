"""Charts over steps of time as shapes for an SVG (`step_charts.html` draws them): areas, lines, cells. Pure.

A value stands for a step, so areas and lines are drawn in steps. A step without a value breaks a line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor, log10
from typing import Any

Json = dict[str, Any]
WIDTH, HEIGHT = 560.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 552.0, 10.0, 168.0
TICKS = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """One series: its name, class and path."""

    name: str
    look: str
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart; ticks are (place, text). words are its content for who does not see it."""

    title: str
    shapes: tuple[Shape, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    words: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Steps of time from left to right, and values up to the highest."""

    starts: Sequence[int]
    step_s: int
    until: float
    high: float
    left: float = LEFT

    def x(self, at: float) -> float:
        """The place of a moment."""
        first, last = self.starts[0], self.starts[-1] + self.step_s
        return self.left + (at - first) / (last - first) * (RIGHT - self.left)

    def y(self, value: float) -> float:
        """The place of a value."""
        return BOTTOM - value / (self.high or 1.0) * (BOTTOM - TOP)

    def ends(self) -> list[tuple[float, float]]:
        """The left and right end of each step; of the last one as far as it has come."""
        stops = [min(each + self.step_s, max(each, self.until)) for each in self.starts]
        return [(self.x(at), self.x(stop)) for at, stop in zip(self.starts, stops, strict=True)]

    def area(self, values: Sequence[float], below: Sequence[float]) -> str:
        """What is between two series."""
        upper, lower = self._corners(values), self._corners(below)
        return f"M{' '.join((*upper, *reversed(lower)))}Z"

    def _corners(self, values: Sequence[float]) -> list[str]:
        """Both ends of each step."""
        return [
            f"{x:.1f},{self.y(value):.1f}"
            for ends, value in zip(self.ends(), values, strict=True)
            for x in ends
        ]

    def line(self, values: Sequence[float | None]) -> str:
        """A series, broken where there is no value."""
        path, is_down = [], False
        for (left, right), value in zip(self.ends(), values, strict=True):
            if value is not None:
                y = self.y(value)
                path.append(f"{'L' if is_down else 'M'}{left:.1f},{y:.1f} {right:.1f},{y:.1f}")
            is_down = value is not None
        return "".join(path)

    def x_ticks(self) -> tuple[tuple[float, str], ...]:
        """Five moments, in UTC as the steps are."""
        form = "%H:%M" if self.step_s * len(self.starts) <= 2 * 86_400 else "%d %b"
        each = max(1, len(self.starts) // 5)
        return tuple(
            (self.x(at), datetime.fromtimestamp(at, UTC).strftime(form))
            for at in self.starts[each // 2 :: each]
        )

    def y_ticks(self, unit: str = "") -> tuple[tuple[float, str], ...]:
        """Round values."""
        raw = (self.high or 1.0) / TICKS
        power = 10.0 ** floor(log10(raw))
        step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw)
        values = [number * step for number in range(TICKS + 1)]
        return tuple((self.y(v), f"{v:,.10g}{unit}") for v in values if v <= (self.high or 1.0))


def frame_of(found: Json, high: float) -> Frame:
    """The frame of an answer of the history."""
    return Frame(found["starts"], found["step_s"], found["until"], high)


def on_average(found: Json, gpu_s: Sequence[float]) -> list[float]:
    """GPUs in each step of an answer of the history; in the last one as far as it has come."""
    seconds = [
        max(1.0, min(found["until"], start + found["step_s"]) - start) for start in found["starts"]
    ]
    return [each / width for each, width in zip(gpu_s, seconds, strict=True)]


def stacked(
    frame: Frame, series: Sequence[tuple[str, Sequence[float]]], looks: Sequence[str]
) -> tuple[Shape, ...]:
    """Series over each other, the first lowest."""
    below, shapes = [0.0] * len(frame.starts), []
    for (name, values), look in zip(series, looks, strict=True):
        above = [low + value for low, value in zip(below, values, strict=True)]
        shapes.append(Shape(name, look, frame.area(above, below)))
        below = above
    return tuple(shapes)
