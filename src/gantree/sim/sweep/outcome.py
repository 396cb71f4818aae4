"""What a sweep came to: a comparison for each cluster and trace, its page, and sweep.json."""

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
from gantree.sim.sweep.plan import PlannedRun
from gantree.sim.sweep.runner import RUNS

JSON, PAGE = "sweep.json", "compare.html"


def comparisons_of(
    plan: Sequence[PlannedRun], failed: Mapping[str, str], out: Path
) -> list[Comparison]:
    """A comparison for each cluster and trace, in the order of the grid, of the simulations that did not fail."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for planned in plan:
        if planned.name not in failed:
            run = read_run(out / RUNS / planned.name)
            there = replace(run, path=Path(RUNS) / planned.name)  # the same wherever the sweep is
            runs.setdefault((planned.cluster, planned.trace), []).append(there)
    return [compare(variants_of(each)) for each in runs.values()]


def sweep_document(
    plan: Sequence[PlannedRun], failed: Mapping[str, str], comparisons: Sequence[Comparison]
) -> dict[str, Any]:
    """The object of sweep.json and of `gantree sweep --json`."""
    return {
        "runs": [
            {
                "name": planned.name,
                "cluster": planned.cluster,
                "trace": planned.trace,
                "policy": planned.policy,
                "override": planned.override.name,
                "seed": planned.seed,
                "error": failed.get(planned.name),
            }
            for planned in plan
        ],
        "comparisons": [comparison.document() for comparison in comparisons],
    }


def write_outcome(
    plan: Sequence[PlannedRun],
    failed: Mapping[str, str],
    comparisons: Sequence[Comparison],
    out: Path,
) -> str | None:
    """Write sweep.json and compare.html. Why there is no page, where the extra with the charts is not installed."""
    told = sweep_document(plan, failed, comparisons)
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
