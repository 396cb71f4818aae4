"""`gantree history jobs`: every job that has ended, as `sacct` lists them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from gantree.api.client.client import Client
from gantree.cli.daemon_client import client
from gantree.cli.input.moments import ALLOWED, seconds_since_epoch
from gantree.cli.options import CsvOption, JsonOption, StateOption
from gantree.cli.output.csv_text import csv_text
from gantree.cli.output.figures import digits
from gantree.cli.output.printing import columns, moment, print_json, span
from gantree.model.errors import BadInput, Unreachable

Row = dict[str, Any]
PAGE = 1000
DEFAULT = "job,outcome,queue,user,gpus,gpu-hours,wait,ran,ended,note"


class Outcome(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


def _plain(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row[name] is None else str(row[name])


def _at(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row[name] is None else moment(row[name])


def _hours(name: str) -> Callable[[Row], str]:
    return lambda row: digits(row[name] / 3600)


def _ran(row: Row) -> str:
    return "" if row["started_at"] is None else span(row["ended_at"] - row["started_at"])


def _note(row: Row) -> str:
    """What is unusual about the job."""
    parts = [row["reason"]] if row["outcome"] != Outcome.SUCCEEDED and row["reason"] else []
    parts += [f"exit code {row['exit_code']}"] if row["exit_code"] else []
    parts += [f"preempted {row['preemptions']} x"] if row["preemptions"] else []
    return "; ".join(parts)


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    **{name: _plain(name) for name in ("job", "name", "queue", "user", "priority", "outcome", "reason",
                                       "attempts", "failures", "preemptions", "members", "processes", "gpus",
                                       "nodes")},
    "exit-code": _plain("exit_code"),
    "last-failure": _plain("last_failure"),
    "gpu-model": _plain("gpu_model"),
    "submitted": _at("submitted_at"),
    "started": _at("started_at"),
    "ended": _at("ended_at"),
    "gpu-hours": _hours("held_gpu_s"),
    "lost-gpu-hours": _hours("lost_gpu_s"),
    "wait": lambda row: span(row["waited_s"]),
    "ran": _ran,
    "note": _note,
}  # fmt: skip
"""What a table can show of a job."""


def ended_jobs(
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="In it, or below it.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME")] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="PATTERN", help="Name or id; * and ? stand for others."),
    ] = None,
    outcome: Annotated[
        list[Outcome] | None, typer.Option("--outcome", help="Several may be given.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help=f"Ended then or later: {ALLOWED}.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Ended before that.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="At most so many; 0: all.")
    ] = 100,
    shown: Annotated[
        str, typer.Option("--columns", metavar="NAME,...", help=f"Of {', '.join(COLUMNS)}.")
    ] = DEFAULT,
    as_csv: CsvOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs that have ended, the last that ended first.

    However long ago that was: nothing is forgotten here.
    """
    head, now = _columns(shown), time.time()
    bounds = {
        "since": seconds_since_epoch("--since", since, now),
        "until": seconds_since_epoch("--until", until, now),
    }
    filters = {"queue": queue, "user": user, "name": name, "outcome": outcome or (), **bounds}
    found = _pages(client(state), filters, limit or None)
    rows = list(islice(found, limit or None))
    if as_json:
        print_json({"jobs": rows, "more": limit > 0 and next(found, None) is not None})
        return
    cells = [[COLUMNS[column](row) for column in head] for row in rows]
    if as_csv:
        typer.echo(csv_text(head, cells), nl=False)
    elif rows:
        typer.echo(columns([column.upper().replace("-", " ") for column in head], cells))
        if limit and next(found, None) is not None:
            typer.echo(f"The last {limit}; there are more: --limit N, or 0 for all.", err=True)
    else:
        typer.echo("No ended jobs.")


def _columns(text: str) -> Sequence[str]:
    """The columns that a list names. Raises BadInput."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    wrong = next((name for name in names if name not in COLUMNS), None)
    if wrong is not None or not names:
        raise BadInput(f"--columns: found {wrong or text!r}; allowed: {', '.join(COLUMNS)}")
    return names


def _pages(daemon: Client, filters: Row, limit: int | None) -> Iterator[Row]:
    """Row after row, page by page; one more than the limit tells whether there are more."""
    size = PAGE if limit is None else min(PAGE, limit + 1)
    before: int | None = None
    while True:
        page = daemon.ended_jobs(**filters, before=before, limit=size)
        yield from page["jobs"]
        if page["next"] is None:
            return
        if before is not None and page["next"] >= before:
            raise Unreachable(
                "the next page starts before this one: the server is no gantree daemon"
            )
        before = page["next"]
