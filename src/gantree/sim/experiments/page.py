"""An outcome as a page: Markdown in `docs/experiments`, the same text on the terminal, and a document for programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gantree.sim.experiments.experiment import Cell, Experiment, Judgement, Outcome, Table


def markdown(experiment: Experiment, outcome: Outcome) -> str:
    """Return the page of an experiment. Plots are files beside it."""
    return "\n".join(_lines(experiment, outcome)) + "\n"


def _lines(experiment: Experiment, outcome: Outcome) -> Iterator[str]:
    yield from (f"# {experiment.title}", "", f"    gantree experiment {experiment.name}", "")
    yield from (f"**Claim.** {experiment.claim}", "", f"Source: {experiment.source}", "")
    yield from (f"**Set-up.** {experiment.set_up}", "", "## Verdict", "")
    yield from ("| claim | measured | verdict |", "|---|---|---|")
    for each in outcome.verdicts:
        why = f": {each.why}" if each.why else ""
        yield f"| {each.claim} | {each.measured} | **{each.judgement}**{why} |"
    yield from ("", "## Result", "")
    for plot in outcome.plots:
        yield from (f"![{plot.caption}]({plot.name}.svg)", "")
    for table in outcome.tables:
        yield from _table(table)
    yield from ("## Notes", "")
    for note in (*outcome.notes, *experiment.notes):
        yield from (note, "")


def _table(table: Table) -> Iterator[str]:
    numeric = [
        all(not isinstance(row[place], str) for row in table.rows)
        for place in range(len(table.head))
    ]
    yield from (f"**{table.title}**", "")
    yield f"| {' | '.join(table.head)} |"
    yield f"|{'|'.join('---:' if right else '---' for right in numeric)}|"
    for row in table.rows:
        yield f"| {' | '.join(map(cell_text, row))} |"
    yield ""


def cell_text(cell: Cell) -> str:
    """Return a cell as text: a number with at most four digits that matter."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        text = f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
        return "0" if text == "-0" else text
    return f"{cell:,}" if isinstance(cell, int) else cell


def document(experiment: Experiment, outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for programs; plots by name only."""
    return {
        "experiment": experiment.name,
        "claim": experiment.claim,
        "source": experiment.source,
        "set_up": experiment.set_up,
        "verdicts": [asdict(verdict) for verdict in outcome.verdicts],
        "tables": [asdict(table) for table in outcome.tables],
        "plots": [plot.name for plot in outcome.plots],
        "notes": [*outcome.notes, *experiment.notes],
    }


def index(found: Sequence[tuple[Experiment, Outcome]]) -> str:
    """Return the table of experiments with their verdicts, for the page that lists them."""
    lines = ["| experiment | | verdicts |", "|---|---|---|"]
    for experiment, outcome in found:
        counts = Counter(verdict.judgement for verdict in outcome.verdicts)
        verdicts = ", ".join(f"{counts[each]} {each}" for each in Judgement if counts[each])
        lines.append(
            f"| [{experiment.name}]({experiment.name}.md) | {experiment.title} | {verdicts} |"
        )
    return "\n".join(lines) + "\n"
