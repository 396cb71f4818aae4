"""report.html: a self-contained page with the summary, two charts over time, and unfinished jobs.

The charts are SVG, drawn here: a step function over the whole run is far longer than a screen is wide, so time
is cut into COLUMNS equal parts; the line is the mean over each part, the band behind it reaches from the least to
the most. There is no script in the page, and nothing is loaded from elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from gantree.sim.record import Sample
from gantree.sim.results import Result

COLUMNS = 480
"""Parts that the time of a run is cut into."""

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 200, 64, 24
"""Size of a chart's drawing area in pixels, and the room for numbers beside and below it."""

REASONS_SHOWN = 20
"""Rows at most in the table of jobs that did not finish."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem;
       color: #1c2733; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } tr + tr td { border-top: 1px solid #e3e8ee }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: #51606f } .axis { stroke: #b8c2cc }
.line { fill: none; stroke: #1668b8; stroke-width: 1.5 } .band { fill: #1668b8; opacity: .18; stroke: none }
@media (prefers-color-scheme: dark) {
  body { background: #12181f; color: #dfe6ee } tr + tr td { border-color: #2a3541 }
  svg text { fill: #93a3b3 } .line { stroke: #6bb0f2 } .band { fill: #6bb0f2 } }
"""


@dataclass(frozen=True, slots=True)
class Column:
    """What a step function did in one part of the time."""

    least: float
    mean: float
    most: float


def page(result: Result) -> str:
    """The whole page."""
    title = f"Simulation of {escape(result.cluster)}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{STYLE}</style></head><body>
<h1>{title}: {_size(result)}</h1>
{_summary_table(result)}
<h2>GPUs held by gangs</h2>
{_chart(result.samples, lambda sample: sample.held_gpus, result.gpus, "GPUs held")}
<h2>Jobs that wait</h2>
{_chart(result.samples, lambda sample: sample.waiting_jobs, 0, "jobs that wait")}
{_unfinished_table(result)}
</body></html>
"""


def _size(result: Result) -> str:
    jobs = len(result.jobs)
    return f"{jobs:,} job{'s' * (jobs != 1)} on {result.gpus:,} GPU{'s' * (result.gpus != 1)}"


def _summary_table(result: Result) -> str:
    rows = []
    for name, value in result.summary().items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        rows += [_summary_row(f"{name} {part}".strip(), number) for part, number in parts]
    return "<table>" + "".join(rows) + "</table>"


def _summary_row(name: str, number: float | None) -> str:
    text = "none" if number is None else f"{number:,.3f}".rstrip("0").rstrip(".")
    return f'<tr><td>{escape(name)}</td><td class="n">{text}</td></tr>\n'


def _unfinished_table(result: Result) -> str:
    """Outcomes and reasons of the jobs that did not finish, the most frequent first; empty if there are none."""
    kinds = Counter((row.outcome, row.reason) for row in result.jobs if not row.finished)
    if not kinds:
        return ""
    ordered = sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))
    rows = "".join(
        f'<tr><td class="n">{count:,}</td><td>{escape(outcome)}</td><td>{escape(reason)}</td></tr>\n'
        for (outcome, reason), count in ordered[:REASONS_SHOWN]
    )
    left_out = len(ordered) - REASONS_SHOWN
    more = f"<p>{left_out} more kinds are in jobs.csv.</p>" if left_out > 0 else ""
    return f"<h2>Jobs that did not finish</h2><table>{rows}</table>{more}"


def columns_of(steps: Sequence[tuple[float, float]], count: int) -> list[Column]:
    """A step function [(from_s, value), ...] cut into `count` equal parts of its time; empty if it has none."""
    start_s, end_s = steps[0][0], steps[-1][0]
    if end_s <= start_s:
        return []
    columns, position = [], 0
    for number in range(count):
        from_s = start_s + (end_s - start_s) * number / count
        to_s = start_s + (end_s - start_s) * (number + 1) / count
        while position + 1 < len(steps) and steps[position + 1][0] <= from_s:
            position += 1
        columns.append(_column(steps, position, from_s, to_s))
    return columns


def _column(steps: Sequence[tuple[float, float]], first: int, from_s: float, to_s: float) -> Column:
    """One part; step `first` is the one that is in force at from_s."""
    values, area, at_s, position = [], 0.0, from_s, first
    while True:
        value = steps[position][1]
        values.append(value)
        ends = steps[position + 1][0] if position + 1 < len(steps) else to_s
        area += value * (min(ends, to_s) - at_s)
        if ends >= to_s:
            return Column(min(values), area / (to_s - from_s), max(values))
        at_s, position = ends, position + 1


def _chart(
    samples: Sequence[Sample], value: Callable[[Sample], float], ceiling: float, label: str
) -> str:
    """A chart of one number over time; the axis reaches up to `ceiling`, or to the most there was."""
    columns = columns_of([(sample.at_s, value(sample)) for sample in samples], COLUMNS)
    if not columns:
        return "<p>Nothing happened.</p>"
    top = max(ceiling, *(column.most for column in columns), 1.0)
    length = _length(samples[-1].at_s - samples[0].at_s)
    band = [column.most for column in columns], [column.least for column in columns]
    upper, lower = (_points(values, top) for values in band)
    height, width = HEIGHT + BOTTOM, LEFT + WIDTH
    return f"""<svg viewBox="0 0 {width} {height + 8}" role="img" aria-label="{label} over time">
<text x="{LEFT - 8}" y="12" text-anchor="end">{top:,.0f}</text>
<text x="{LEFT - 8}" y="{HEIGHT}" text-anchor="end">0</text>
<polygon class="band" points="{" ".join([*upper, *reversed(lower)])}"/>
<polyline class="line" points="{" ".join(_points([c.mean for c in columns], top))}"/>
<path class="axis" fill="none" d="M{LEFT} 0V{HEIGHT}H{width}"/>
<text x="{LEFT}" y="{height - 6}">{label}; the band is least to most</text>
<text x="{width}" y="{height - 6}" text-anchor="end">{length}</text>
</svg>"""


def _length(seconds: float) -> str:
    """A span of time in the largest unit of which it holds two."""
    for unit, unit_s in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def _points(values: Sequence[float], top: float) -> list[str]:
    """Pixels of a line through the middles of the columns."""
    wide = WIDTH / len(values)
    return [
        f"{LEFT + (number + 0.5) * wide:.1f},{HEIGHT * (1 - value / top):.1f}"
        for number, value in enumerate(values)
    ]
