"""`gantree compare`: results of several simulations beside each other."""

from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.options import JsonOption
from gantree.cli.output.errors import warn
from gantree.cli.output.printing import columns, print_json
from gantree.model.errors import BadInput
from gantree.sim.compare.comparison import Comparison
from gantree.sim.compare.comparison import compare as compare_variants
from gantree.sim.compare.directories import Run, read_runs
from gantree.sim.compare.page import comparison_page, entry_text
from gantree.sim.compare.variants import variants_of


def compare(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Directories of gantree simulate --out.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write a page with charts (HTML).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare results of simulations of one trace on one cluster.

    Runs that differ in their seed alone are one column; the others are compared with the first.
    """
    if len(directories) < 2:
        raise BadInput("DIR: found one directory; allowed: two or more")
    runs = read_runs(directories)
    _warn_of_versions(runs)
    comparison = compare_variants(variants_of(runs))
    if out is not None:
        write_page(comparison, out)
    if as_json:
        print_json(comparison.document())
    else:
        typer.echo(comparison_text(comparison))
        if out is not None:
            typer.echo(f"written to {out}")


def comparison_text(comparison: Comparison) -> str:
    """The table for people, and how its intervals were made."""
    head = ("FIGURE", *(variant.name for variant in comparison.variants))
    rows = [
        (figure, *map(entry_text, entries))
        for figure, entries in zip(comparison.figures, comparison.entries, strict=True)
    ]
    return f"{columns(head, rows)}\n{comparison.note}"


def write_page(comparison: Comparison, out: Path) -> None:
    """Write the page of a comparison. Raises BadInput where that cannot be."""
    text = comparison_page(comparison)
    try:
        out.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise BadInput(f"--out {out}: {error.strerror}") from None


def _warn_of_versions(runs: list[Run]) -> None:
    versions = sorted({str(run.inputs["version"]) for run in runs})
    if len(versions) > 1:
        warn(f"results are of different versions of gantree: {', '.join(versions)}")
