"""The summary of a run as a table, what was run, and the jobs that did not finish."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gantree.sim.report.document import Section, Table, number_text
from gantree.sim.results import Result

OF_INPUTS = ("inputs", "running")
"""Keys of summary.json that are no results; the model of running is among the options of the inputs, too."""

REASONS_SHOWN = 20
"""Rows at most in the table of jobs that did not finish."""


def lead_of(result: Result) -> str:
    """The sentence below the title."""
    jobs, gpus = len(result.jobs), result.gpus
    return f"{jobs:,} job{'s' * (jobs != 1)} on {gpus:,} GPU{'s' * (gpus != 1)}."


def summary_section(summary: Mapping[str, Any]) -> Section:
    """The figures of summary.json; docs/simulator.md says what each means."""
    figures = {name: value for name, value in summary.items() if name not in OF_INPUTS}
    return Section("Summary", tables=[Table(("figure", "value"), list(flat(figures)))])


def inputs_section(summary: Mapping[str, Any]) -> Section | None:
    """What was run, with the options of the model of running; None where the summary does not say."""
    told = summary.get("inputs")
    if told is None:
        return None
    return Section("What was run", tables=[Table(("input", "value"), list(flat(told)))])


def flat(summary: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | float | None]]:
    """The figures of a nested summary under their names with blanks between; texts as they are."""
    for name, value in summary.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name} ")
        elif isinstance(value, str | int | float) or value is None:
            yield f"{prefix}{name}", value


def unfinished_section(result: Result) -> Section | None:
    """Outcomes and reasons of the jobs that did not finish, the most frequent first; None if there are none."""
    kinds = Counter((row.outcome, row.reason) for row in result.jobs if not row.finished)
    if not kinds:
        return None
    ordered = sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))
    rows = [(count, outcome, reason) for (outcome, reason), count in ordered[:REASONS_SHOWN]]
    left_out = len(ordered) - REASONS_SHOWN
    more = [f"{number_text(left_out)} more kinds are in jobs.csv."] if left_out > 0 else []
    return Section(
        "Jobs that did not finish", more, tables=[Table(("jobs", "outcome", "reason"), rows)]
    )
