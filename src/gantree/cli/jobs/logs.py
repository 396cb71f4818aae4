"""`gantree logs`: the output of a job's processes in the order of time, or as JSON lines."""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from gantree.api.client.client import Client
from gantree.api.client.requests import LogOptions
from gantree.api.streams.logs.pieces import Piece
from gantree.cli.daemon_client import JobArgument, client, job_named
from gantree.cli.input.moments import ALLOWED, seconds_since_epoch
from gantree.cli.jobs.log_follow import follow_output, form_of, pieces_of, write_stdout
from gantree.cli.options import StateOption
from gantree.model.errors import BadInput


def logs(
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")
    ] = False,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Print only this rank, without the [rank] prefix.")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="RANKS", help="Print only these ranks: 0,3-7.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Print only this attempt. [default: all]")
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            "-n",
            min=0,
            max=1_000_000,
            metavar="LINES",
            help="Print only the last lines of each rank; with -f also new lines.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help=f"Print only what was written then or later: {ALLOWED}.",
        ),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep",
            "-g",
            metavar="PATTERN",
            help="Print only lines that match this regular expression (RE2); (?i) ignores case.",
        ),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Print when each line was written, in UTC.")
    ] = False,
    state: StateOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Print the output of a job, all ranks in the order of time.

    With -f and without -n, it waits for the next daemon if this one ends, and continues where it was.
    """
    if rank is not None and ranks is not None:
        raise BadInput("--rank and --ranks: give only one of them")
    daemon = client(state)
    options: LogOptions = {
        "rank": rank,
        "ranks": ranks,
        "attempt": attempt,
        "tail": tail,
        "since": seconds_since_epoch("--since", since, time.time()),
        "grep": grep,
    }
    write_stdout(_output(daemon, job_named(daemon, job), options, follow, timestamps, as_json))


def _output(
    daemon: Client, job: str, options: LogOptions, follow: bool, timestamps: bool, as_json: bool
) -> Iterator[bytes]:
    """What is printed, as it comes."""
    is_resumed = follow and options.get("tail") is None
    if not is_resumed and not as_json:
        return daemon.logs(job, timestamps=timestamps, **options, follow=follow)
    if as_json and options.get("rank") is not None:  # whole lines
        options = {**options, "rank": None, "ranks": str(options["rank"])}
    if is_resumed:
        job = daemon.job(job)["job"]  # by its id: another may get its name
        pieces = follow_output(daemon, job, options, notify=_notify)
    else:
        pieces = pieces_of(daemon.log_pieces(job, **options, follow=follow))
    return _json_lines(pieces) if as_json else map(form_of(options, times=timestamps), pieces)


def _notify(sentence: str) -> None:
    typer.echo(f"gantree: {sentence}", err=True)


def _json_lines(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Each line as an object, all of a piece at once."""
    for piece in pieces:
        lines = piece.data.removesuffix(b"\n").split(b"\n")
        yield b"".join(_json_line(piece, line) for line in lines)


def _json_line(piece: Piece, line: bytes) -> bytes:
    row = {
        "rank": piece.rank,
        "line": line.decode(errors="replace"),
        "attempt": piece.attempt,
        "at": piece.at,
    }
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"
