"""`gantree trace synthesize`: a new trace with the distribution of another one, or of a workload file."""

from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.input.durations import seconds_of
from gantree.cli.input.files import read_text
from gantree.cli.options import JsonOption
from gantree.cli.traces.files import FormatOption, OutOption, opened, written
from gantree.formats.traces.table import MAX_ROWS
from gantree.formats.workload import Workload, read_workload
from gantree.sim.traces.distribution import distribution_of
from gantree.sim.traces.synthesis import synthesize as drawn

YAML_SUFFIXES = (".yaml", ".yml")


def synthesize(
    source: Annotated[
        Path, typer.Argument(metavar="TRACE|WORKLOAD", help="A trace, or a workload file (.yaml).")
    ],
    out: OutOption,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_ROWS,
            metavar="N",
            help="Number of jobs. [default: in proportion to the span]",
        ),
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time in which they come. [default: that of the source]"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Another seed draws other jobs.")] = 0,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a new trace with the distribution of another one, or of a workload file."""
    span_s = None if span is None else seconds_of("--span", span)
    workload = _workload(source, form)
    written(drawn(workload, seed, jobs, span_s), out, {"seed": seed}, as_json=as_json)


def _workload(source: Path, form: str | None) -> Workload:
    if source.suffix in YAML_SUFFIXES:
        return read_workload(read_text(str(source)), str(source))
    return distribution_of(opened(source, form))
