"""`gantree trace import`: a public trace, or the accounts of another scheduler, as a trace of gantree."""

from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.options import JsonOption
from gantree.cli.output.errors import warn
from gantree.cli.traces.files import FORMATS, FormatOption, OutOption, opened, written
from gantree.text.words import plural


def import_(
    source: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help=f"Trace of a format: {', '.join(FORMATS)}.")
    ],
    out: OutOption,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a public trace, or accounts of another scheduler, as a trace in the order of submission."""
    trace = opened(source, form)
    told = {"format": trace.format, "left_out": dict(sorted(trace.left_out.items()))}
    written(trace, out, told, as_json=as_json)
    if trace.left_out:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(trace.left_out.items()))
        warn(f"{plural(trace.left_out.total(), 'row')} left out: {why}")
