"""`gantree trace import`: a public trace, or the accounts of another scheduler, as a trace of gantree."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from gantree.cli.options import JsonOption
from gantree.cli.output.errors import warn
from gantree.cli.output.progress import busy
from gantree.cli.traces.files import FORMATS, OutOption, opened, written
from gantree.formats.traces import TraceJob
from gantree.model.errors import BadInput, Unsupported
from gantree.text.words import plural

JOURNAL, KUBERNETES = "journal", "kubernetes"
HEAD_BYTES = 64
ALL_FORMATS = tuple(sorted((*FORMATS, JOURNAL, KUBERNETES)))


class _Read(NamedTuple):
    """What was read: its format, its jobs in the order of submission, and what was left out, by reason."""

    form: str
    jobs: Iterable[TraceJob]
    left_out: Counter[str]


def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="FILE|DIR", help=f"Trace of a format: {', '.join(ALL_FORMATS)}."),
    ],
    out: OutOption,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="Format of the source. [default: as its content says]"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a public trace, or accounts of another scheduler, as a trace in the order of submission."""
    read = _read(source, form or _own_format(source))
    left_out = dict(sorted(read.left_out.items()))
    written(read.jobs, out, {"format": read.form, "left_out": left_out}, as_json=as_json)
    if left_out:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        warn(f"{plural(read.left_out.total(), 'row')} left out: {why}")


def _own_format(source: str) -> str | None:
    """JOURNAL or KUBERNETES, which no column tells; None for all others."""
    from gantree.cli.input.recordings import holds_journal  # noqa: PLC0415 - takes long

    path = Path(source)
    if "://" in source or holds_journal(path):
        return JOURNAL
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return KUBERNETES if file.read(HEAD_BYTES).lstrip().startswith(b"{") else None


def _read(source: str, form: str | None) -> _Read:
    if form == JOURNAL:
        return _of_journal(source)
    if form == KUBERNETES:
        return _of_pods(Path(source))
    trace = opened(Path(source), form, (JOURNAL, KUBERNETES))
    return _Read(trace.format, trace, trace.left_out)


def _of_journal(source: str) -> _Read:
    from gantree.cli.input.recordings import recording_in  # noqa: PLC0415 - takes long
    from gantree.sim.traces.recorded import recorded_jobs  # noqa: PLC0415 - as above

    with busy("Reading"):
        jobs, left_out = recorded_jobs(recording_in(source, None, None))
    return _Read(JOURNAL, jobs, left_out)


def _of_pods(path: Path) -> _Read:
    try:
        from gantree.executors.kubernetes.tools.pod_list import gangs_of_list  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise Unsupported(
            "Lists of pods need the extra of Kubernetes: pip install 'gantree[kubernetes]'"
        ) from None
    from gantree.sim.traces.rows import from_monday, row_of  # noqa: PLC0415 - takes long

    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    with busy("Reading"):
        gangs, left_out = gangs_of_list(text, str(path))
    zero = from_monday(gangs[0].submitted_at) if gangs else 0.0
    jobs = [row_of(gang.job, gang.job.name, gang.submitted_at - zero, gang.ran_s) for gang in gangs]
    return _Read(KUBERNETES, jobs, left_out)
