"""What a sweep came to: the comparisons of its cells, one for each cluster and trace, its page, and sweep.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantree.model.errors import BadInput, Unsupported
from gantree.sim.compare.comparison import Comparison, compare
from gantree.sim.compare.directories import Run, read_run
from gantree.sim.compare.page import comparison_sections
from gantree.sim.compare.variants import variants_of
from gantree.sim.report.document import document
from gantree.sim.sweep.cells import Cell
from gantree.sim.sweep.runner import CELLS

JSON, PAGE = "sweep.json", "compare.html"


def comparisons_of(cells: Sequence[Cell], failed: Mapping[str, str], out: Path) -> list[Comparison]:
    """A comparison for each cluster and trace, in the order of the grid, of the cells that did not fail."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for cell in cells:
        if cell.name not in failed:
            run = read_run(out / CELLS / cell.name)
            there = replace(run, path=Path(CELLS) / cell.name)  # the same wherever the sweep is
            runs.setdefault((cell.cluster, cell.trace), []).append(there)
    return [compare(variants_of(each)) for each in runs.values()]


def sweep_document(
    cells: Sequence[Cell], failed: Mapping[str, str], comparisons: Sequence[Comparison]
) -> dict[str, Any]:
    """The object of sweep.json and of `gantree sweep --json`."""
    return {
        "cells": [
            {
                "name": cell.name,
                "cluster": cell.cluster,
                "trace": cell.trace,
                "policy": cell.policy,
                "override": cell.override.name,
                "seed": cell.seed,
                "error": failed.get(cell.name),
            }
            for cell in cells
        ],
        "comparisons": [comparison.document() for comparison in comparisons],
    }


def write_outcome(
    cells: Sequence[Cell], failed: Mapping[str, str], comparisons: Sequence[Comparison], out: Path
) -> str | None:
    """Write sweep.json and compare.html. Why there is no page, where the extra with the charts is not installed."""
    told = sweep_document(cells, failed, comparisons)
    missing = None
    try:
        page: str | None = _page(comparisons, out)
    except Unsupported as error:
        page, missing = None, str(error)
    try:
        (out / JSON).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        if page is None:
            (out / PAGE).unlink(missing_ok=True)
        else:
            (out / PAGE).write_text(page, encoding="utf-8", newline="")
    except OSError as error:
        raise BadInput(f"--out {out}: {error.strerror}") from None
    return missing


def _page(comparisons: Sequence[Comparison], out: Path) -> str:
    sections = []
    for comparison in comparisons:
        inputs = comparison.variants[0].inputs
        of = f"{inputs['trace']['name']} on {inputs['cluster']['name']}"
        sections += [
            replace(section, heading=f"{section.heading}: {of}")
            for section in comparison_sections(comparison, out)
        ]
    return document("Sweep", f"Intervals: {comparisons[0].note}." if comparisons else "", sections)
