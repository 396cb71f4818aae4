"""Charts of the history as shapes for an SVG: areas over each other, lines, bars. Pure.

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
QUEUES_SHOWN = 6
OTHERS = "others"


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

    def x(self, at: float) -> float:
        """The place of a moment."""
        first, last = self.starts[0], self.starts[-1] + self.step_s
        return LEFT + (at - first) / (last - first) * (RIGHT - LEFT)

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


def charts(usage: Json, queues: Json, waits: Json) -> list[Chart]:
    """The charts of a period, of the three answers of the history."""
    whole = usage["rows"][0] if usage["rows"] else None
    if whole is None:
        return []
    return [_gpus(usage, whole), _shares(usage, queues), _waits(waits), _preemptions(usage, whole)]


def _seconds(found: Json) -> list[float]:
    """How long each step is; the last as long as it has come."""
    return [max(1.0, min(found["until"], start + found["step_s"]) - start) for start in found["starts"]]  # fmt: skip


def _frame(found: Json, high: float) -> Frame:
    return Frame(found["starts"], found["step_s"], found["until"], high)


def _on_average(found: Json, gpu_s: Sequence[float]) -> list[float]:
    return [each / seconds for each, seconds in zip(gpu_s, _seconds(found), strict=True)]


def _gpus(found: Json, row: Json) -> Chart:
    capacity = _on_average(found, row["capacity_gpu_s"])
    allocated, used = (_on_average(found, row[f"{name}_gpu_s"]) for name in ("allocated", "used"))
    frame, nothing = _frame(found, max(*capacity, *allocated, 1.0)), [0.0] * len(allocated)
    shapes = (
        Shape("allocated", "allocated", frame.area(allocated, nothing)),
        Shape("used", "used", frame.area(used, nothing)),
        Shape("capacity", "capacity", frame.line([each or None for each in capacity])),
    )
    there, held = sum(row["capacity_gpu_s"]), sum(row["allocated_gpu_s"])
    share = f", {100 * held / there:.0f} % of {there / 3600:,.0f}" if there else ""
    words = (
        f"{held / 3600:,.1f} GPU-hours allocated{share}; {sum(row['used_gpu_s']) / 3600:,.1f} used"
    )
    return Chart("GPUs", shapes, frame.x_ticks(), frame.y_ticks(), words)


def _shares(found: Json, queues: Json) -> Chart:
    rows = [row for row in queues["rows"] if sum(row["allocated_gpu_s"]) > 0]
    series = [(row["name"], _on_average(found, row["allocated_gpu_s"])) for row in rows]
    if len(series) > QUEUES_SHOWN:
        rest = [sum(each) for each in zip(*(values for _, values in series[QUEUES_SHOWN:]), strict=True)]  # fmt: skip
        series = [*series[:QUEUES_SHOWN], (OTHERS, rest)]
    below = [0.0] * len(found["starts"])
    high = max((sum(each) for each in zip(*(v for _, v in series), strict=True)), default=1.0)
    frame, shapes = _frame(found, high or 1.0), []
    for place, (name, values) in enumerate(series):
        above = [low + value for low, value in zip(below, values, strict=True)]
        shapes.append(Shape(name, f"hue-{place}", frame.area(above, below)))
        below = above
    held = [sum(row["allocated_gpu_s"]) for row in rows]
    amounts = [*held[:QUEUES_SHOWN], sum(held[QUEUES_SHOWN:])]
    named = zip((name for name, _ in series), amounts, strict=False)
    parts = [f"{name} {100 * amount / sum(held):.0f} %" for name, amount in named]
    words = "Allocated: " + (", ".join(parts) or "nothing")
    return Chart("Queues", tuple(shapes), frame.x_ticks(), frame.y_ticks(), words)


def _waits(found: Json) -> Chart:
    steps = found["rows"][0]["steps"] if found["rows"] else []
    half, most = ([step[name] for step in steps] for name in ("p50_s", "p99_s"))
    scale, unit = _unit(max((each for each in most if each is not None), default=1.0))
    high = max((each / scale for each in most if each is not None), default=1.0)
    frame = _frame(found, high or 1.0)
    lines = (("half of the jobs", "p50", half), ("99 of 100", "p99", most))
    shapes = tuple(
        Shape(name, look, frame.line([None if each is None else each / scale for each in values]))
        for name, look, values in lines
        if values
    )
    whole = found["rows"][0]["all"] if found["rows"] else {"jobs": 0}
    words = f"{whole['jobs']:,} jobs started for the first time"
    if whole["jobs"]:
        half_s, most_s = (f"{whole[name] / scale:,.3g}{unit}" for name in ("p50_s", "p99_s"))
        words += f"; half waited at most {half_s}, 99 of 100 {most_s}"
    return Chart("Waits", shapes, frame.x_ticks(), frame.y_ticks(unit), words)


def _unit(seconds: float) -> tuple[float, str]:
    if seconds >= 7200:
        return 3600.0, " h"
    return (60.0, " min") if seconds >= 120 else (1.0, " s")


def _preemptions(found: Json, row: Json) -> Chart:
    counts = [float(each) for each in row["preempted"]]
    frame = _frame(found, max(1.0, *counts))
    bars = Shape("preemptions", "preempted", frame.area(counts, [0.0] * len(counts)))
    lost = sum(row["lost_gpu_s"]) / 3600
    words = f"{sum(row['preempted']):,} preemptions; {lost:,.3g} GPU-hours of work done again"
    return Chart("Preemptions", (bars,), frame.x_ticks(), frame.y_ticks(), words)
