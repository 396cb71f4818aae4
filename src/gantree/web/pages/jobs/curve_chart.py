"""Charts of what a job reported over its steps: loss and step time, a line for each attempt. Pure.

Steps that an attempt redid lie on those of the attempt before it, whose line is faint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from gantree.executors.progress import Progress

WIDTH, HEIGHT = 560.0, 190.0
LEFT, TOP, BOTTOM = 62.0, 10.0, 22.0
TICKS = 4
LEAST_RANGE = 0.2
MOST_POINTS = 400
"""Points of a line; more cannot be told apart."""

Curve = tuple[int, Sequence[Progress]]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """The line of an attempt: points as an SVG has them."""

    attempt: int
    points: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart; ticks are (place, text)."""

    title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    words: str


def charts(curves: Sequence[Curve]) -> list[Chart]:
    """Those of the figures that were reported."""
    loss = [
        (attempt, _pairs((each.step, each.loss) for each in points)) for attempt, points in curves
    ]
    step_s = [
        (attempt, _pairs((each.step, each.step_s) for each in points)) for attempt, points in curves
    ]
    drawn = (_chart("Loss", "", loss), _chart("Step time", " s", step_s))
    return [each for each in drawn if each is not None]


def _pairs(values: Iterable[tuple[int, float | None]]) -> Points:
    return [(float(x), y) for x, y in values if y is not None and isfinite(y)]


def _chart(title: str, unit: str, curves: Sequence[tuple[int, Points]]) -> Chart | None:
    """A chart of lines with two points or more."""
    curves = [(attempt, points) for attempt, points in curves if len(points) > 1]
    if not curves:
        return None
    everything = [point for _, points in curves for point in points]
    x_axis = _Axis.over([x for x, _ in everything], LEFT, WIDTH - 8)
    y_axis = _Axis.over([y for _, y in everything], HEIGHT - BOTTOM, TOP, LEAST_RANGE)
    lines = tuple(Line(attempt, _path(points, x_axis, y_axis)) for attempt, points in curves)
    last = curves[-1][1]
    words = f"{title} from {last[0][1]:.4g} to {last[-1][1]:.4g}{unit}, steps {last[0][0]:,.0f} to {last[-1][0]:,.0f}"
    return Chart(title, lines, x_axis.ticks(""), y_axis.ticks(unit), words)


def _path(points: Points, x_axis: "_Axis", y_axis: "_Axis") -> str:
    stride = -(-len(points) // MOST_POINTS)
    kept = [*points[::stride], points[-1]] if stride > 1 else points
    return " ".join(f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in kept)


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values from low to high on the way from one place to another."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(
        cls, values: Sequence[float], start: float, end: float, least_range: float = 0.0
    ) -> "_Axis":
        """least_range: of the largest value, so that noise does not fill a chart."""
        low, high = min(values), max(values)
        largest = max(abs(low), abs(high)) or 1.0
        room = max(0.0, least_range * largest - (high - low)) or largest * (high == low)
        low, high = low - room / 2, high + room / 2
        return cls(low, high, start, end)

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, unit: str) -> tuple[tuple[float, str], ...]:
        """Round values, about four."""
        raw = (self.high - self.low) / TICKS
        power = 10.0 ** floor(log10(raw))
        step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw)
        first = -(-self.low // step)
        values = [(first + number) * step for number in range(2 * TICKS)]
        return tuple(
            (self.place(value), f"{value:,.10g}{unit}") for value in values if value <= self.high
        )
