"""`gantree sweep`: a grid of simulations on all cores."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, shallow
from gantree.cli.output.errors import FAILURE, warn
from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import progress
from gantree.cli.simulation.compare import comparison_text
from gantree.formats.sweep import read_sweep
from gantree.sim.compare.comparison import Comparison
from gantree.sim.sweep.outcome import PAGE, comparisons_of, sweep_document, write_outcome
from gantree.sim.sweep.plan import plan_of
from gantree.sim.sweep.runner import run_sweep


def sweep(
    file: Annotated[str, typer.Argument(metavar="SWEEP.yaml", help="Sweep file.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Output directory; finished simulations in it stay."
        ),
    ],
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes; all cores, if omitted.")
    ] = None,
    reports: Annotated[
        bool, typer.Option("--reports", help="Write a report.html for each simulation.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate a grid of clusters, traces, policies and seeds.

    Finished simulations are not run again, so a sweep that was stopped goes on with the same command.
    """
    grid = read_sweep(read_text(file), source_of(file))
    plan = plan_of(grid, Path(file).parent)
    shallow(out, "--out")
    with progress("Simulating") as advance:
        failed = run_sweep(
            plan, out, processes or len(os.sched_getaffinity(0)), advance, report=reports
        )
    comparisons = comparisons_of(plan, failed, out)
    missing = write_outcome(plan, failed, comparisons, out)
    if missing is not None:
        warn(f"{out / PAGE} was not written: {missing}")
    if as_json:
        print_json(sweep_document(plan, failed, comparisons))
    else:
        typer.echo(_text(comparisons, out))
    _tell_failures(failed, len(plan))


def _text(comparisons: Sequence[Comparison], out: Path) -> str:
    parts = []
    for comparison in comparisons:
        inputs = comparison.variants[0].inputs
        title = f"{inputs['trace']['name']} on {inputs['cluster']['name']}"
        parts.append(f"{title}\n{comparison_text(comparison)}")
    return "\n\n".join([*parts, f"written to {out}"])


def _tell_failures(failed: Mapping[str, str], plan: int) -> None:
    """Name the simulations that failed, and end with an error."""
    if not failed:
        return
    for name, error in failed.items():
        typer.echo(f"gantree: {name}: {error}", err=True)
    typer.echo(f"gantree: {len(failed)} of {plan} simulations failed", err=True)
    raise typer.Exit(FAILURE)
