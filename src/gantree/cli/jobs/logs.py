"""`gantree logs`: the output of a job's processes, byte by byte as it was written, or as JSON lines."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from gantree.cli.daemon_client import JobArgument, client
from gantree.cli.jobs.log_follow import follow_output, write_stdout
from gantree.cli.options import StateOption
from gantree.model.errors import Unreachable


def logs(
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")
    ] = False,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Print only this rank, without the [rank] prefix.")
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
    state: StateOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Print the output of a job.

    With -f and without -n, it waits for the next daemon if this one ends, and continues where it was.
    """
    daemon = client(state)
    if follow and tail is None:
        job = daemon.job(job)["job"]  # by its id: another may get its name
        chunks = follow_output(daemon, job, rank, attempt, notify=_notify)
    else:
        chunks = daemon.logs(job, rank=rank, follow=follow, attempt=attempt, tail=tail)
    write_stdout(_json_lines(chunks, rank) if as_json else chunks)


def _notify(sentence: str) -> None:
    typer.echo(f"gantree: {sentence}", err=True)


def _json_lines(chunks: Iterable[bytes], rank: int | None) -> Iterator[bytes]:
    """Each line as {"rank": its rank, "line": its text}, all of a chunk's lines at once."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield b"".join(_json_line(line, rank) for line in lines)
    if rest:
        yield _json_line(rest, rank)


def _json_line(line: bytes, rank: int | None) -> bytes:
    """Without a rank the daemon has put "[rank] " before the line."""
    text = line.decode(errors="replace")
    if rank is None:
        number, _, text = text.removeprefix("[").partition("] ")
        if not number.isdecimal():
            raise Unreachable(
                "the output has a line without a rank: the server is no gantree daemon"
            )
        rank = int(number)
    return json.dumps({"rank": rank, "line": text}, ensure_ascii=False).encode() + b"\n"
