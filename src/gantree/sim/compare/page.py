"""The comparison as one page: the table of figures, and the charts of all variants over each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

from gantree.sim.charts import Chart, cdf, distribution, lines
from gantree.sim.compare.comparison import Comparison, Entry
from gantree.sim.compare.intervals import Estimate
from gantree.sim.compare.variants import Variant
from gantree.sim.report.document import Section, Table, document, number_text

HOURS = "hours from the first submission"
VARIANT = "policy"
TIMES = {
    "waiting": "from submission to the first start",
    "completion": "from submission to the end",
}
TIMES_SHOWN = 2_000
"""Times of jobs in a distribution of one variant at most, evenly over the ranks."""

Row = Mapping[str, float | None]


def comparison_page(comparison: Comparison) -> str:
    """The page. Raises Unsupported where the extra with the charts is not installed, BadInput for a damaged file."""
    inputs = comparison.variants[0].inputs
    title = f"Comparison on {inputs['cluster']['name']}"
    lead = f"Trace {inputs['trace']['name']}, {inputs['trace']['jobs']:,} jobs. Intervals: {comparison.note}."
    return document(title, lead, comparison_sections(comparison))


def comparison_sections(comparison: Comparison, below: Path = Path()) -> list[Section]:
    """The table and the charts. Directories of runs that are relative are below a directory."""
    notes = ["The mean over seeds, its interval, and the difference to the first column."]
    variants = [
        replace(variant, runs=tuple(replace(run, path=below / run.path) for run in variant.runs))
        for variant in comparison.variants
    ]
    held = _over_time(variants, "share held", _share_held)
    waiting = _over_time(variants, "jobs", lambda row: row["waiting_jobs"])
    return [
        Section("Figures", notes, tables=[figures_table(comparison)]),
        Section("Allocation", ["GPUs that gangs held, over all GPUs."], [held]),
        Section("Queue length", ["Jobs that wait."], [waiting]),
        Section(
            "Waiting and completion", ["Less than 1 s is drawn as 1 s."], _distributions(variants)
        ),
    ]


def figures_table(comparison: Comparison) -> Table:
    """One row a figure, one column a variant."""
    head = ("figure", *(variant.name for variant in comparison.variants))
    rows = [
        (figure, *(entry_text(entry) for entry in entries))
        for figure, entries in zip(comparison.figures, comparison.entries, strict=True)
    ]
    return Table(head, rows)


def entry_text(entry: Entry) -> str:
    """A figure for people: "12.3 ± 0.4 (+5.1 % ± 1.2)"; the last is the difference to the first variant."""
    if entry.value is None:
        return "-"
    text = f"{_short(entry.value.mean)}{_half(entry.value, 1.0)}"
    if entry.difference is None:
        return text
    if entry.percent is None or not entry.difference.mean:
        return f"{text} ({_signed(entry.difference.mean)}{_half(entry.difference, 1.0)})"
    scale = entry.percent / entry.difference.mean
    return f"{text} ({_signed(entry.percent)} %{_half(entry.difference, scale)})"


def _half(told: Estimate, scale: float) -> str:
    return "" if told.high is None else f" ± {_short(abs((told.high - told.mean) * scale))}"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{_short(value)}"


def _short(value: float) -> str:
    """Three significant digits, and no fewer than the whole number."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return number_text(round(value, digits))


def _share_held(row: Row) -> float | None:
    held, gpus = row["held_gpus"], row["gpus"]
    return None if held is None or not gpus else held / gpus


def _over_time(
    variants: Iterable[Variant], name: str, value: Callable[[Row], float | None]
) -> Chart:
    """One line a variant; over several seeds the mean of each part, at the mean of its time."""
    rows: list[dict[str, Any]] = []
    for variant in variants:
        for parts in zip(*(run.timeline() for run in variant.runs), strict=False):
            told = [value(part) for part in parts]
            known = [each for each in told if each is not None]
            middles = [((p["from_s"] or 0.0) + (p["to_s"] or 0.0)) / 7200 for p in parts]
            if known:
                rows.append(
                    {
                        HOURS: round(_mean(middles), 3),
                        name: round(_mean(known), 4),
                        VARIANT: variant.name,
                    }
                )
    start = min((row[HOURS] for row in rows), default=0.0)
    shifted = [{**row, HOURS: round(row[HOURS] - start, 3)} for row in rows]
    return lines(shifted, HOURS, name, VARIANT, width=680)


def _distributions(variants: Iterable[Variant]) -> list[Chart]:
    rows: list[dict[str, Any]] = []
    for variant in variants:
        times = [each for run in variant.runs for each in run.job_times()]
        for number, what in enumerate(TIMES):
            known = [each[number] for each in times if each[number] is not None]
            rows += [
                {"what": what, "time": at, VARIANT: variant.name}
                for at, _ in distribution([each for each in known if each is not None], TIMES_SHOWN)
            ]
    charts = []
    for what, title in TIMES.items():
        shown = [row for row in rows if row["what"] == what]
        if shown:
            heading = what.capitalize()
            charts.append(
                cdf(
                    shown, "time", VARIANT, title=heading, x_title=title, log_x=True, durations=True
                )
            )
    return charts


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
