"""Traces on the command line: opened, and written with a word about it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import busy
from gantree.formats.traces import Trace, TraceJob, open_trace, write_trace
from gantree.formats.traces.importers import DOCUMENTS, TABLES
from gantree.formats.traces.writer import SUFFIXES
from gantree.model.errors import BadInput, NotFound
from gantree.text.words import did_you_mean, plural

_NAMES = ("gantree", *(each.name for each in TABLES), *(each.name for each in DOCUMENTS))
FORMATS = tuple(sorted(_NAMES))

TraceArgument = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Trace: CSV, gzipped CSV, Parquet, or a public one.")
]
OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FILE", help=f"Trace to write: {', '.join(SUFFIXES)}."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="NAME", help="Format of the source. [default: as its columns say]"
    ),
]


def opened(path: Path, form: str | None = None, more: tuple[str, ...] = ()) -> Trace:
    """A checked trace. Raises BadInput where there is none: a file that a command line names is input."""
    known = (*FORMATS, *more)
    if form is not None and form not in known:
        hint = did_you_mean(form, known)
        raise BadInput(f"--format: found {form!r}; allowed: {', '.join(known)}. {hint}".rstrip())
    try:
        with busy("Reading"):
            return open_trace(path, form)
    except NotFound as error:
        raise BadInput(str(error)) from None


def written(jobs: Iterable[TraceJob], out: Path, told: dict[str, Any], *, as_json: bool) -> None:
    """Write a trace and say what was written; told is what is known besides, for programs."""
    with busy("Writing"):
        count = write_trace(jobs, out)
    if as_json:
        print_json({"written_to": str(out), "jobs": count, **told})
    else:
        typer.echo(f"{out}: {plural(count, 'job')}")
