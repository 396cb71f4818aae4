"""`gantree jobs`: the queue as a table, once or again and again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from gantree.api.client.client import Client
from gantree.cli.daemon_client import client
from gantree.cli.input.moments import ALLOWED, seconds_since_epoch
from gantree.cli.input.words import checked_words, unknown_word
from gantree.cli.jobs.job_columns import COLUMNS, Column, Row, chosen_columns
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.cli.output.list_watch import WatchCommand, WatchOption, watch
from gantree.cli.output.printing import columns, print_json, printable
from gantree.model.errors import BadInput
from gantree.model.phases import ENDED, Phase

app = new_app()


@app.command(cls=WatchCommand)
def jobs(
    all_jobs: Annotated[bool, typer.Option("--all", help="Include jobs that have ended.")] = False,
    queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Only jobs of this queue, or below it.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Only jobs of this user.")
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHASE,...",
            help="Only jobs in these phases, ended ones too.",
            autocompletion=lambda: list(Phase),
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help=f"Only jobs submitted then or later: {ALLOWED}."),
    ] = None,
    column_names: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAME,...", help=f"Columns: {', '.join(COLUMNS)}."),
    ] = None,
    watch_s: WatchOption = None,
    expand: Annotated[
        bool, typer.Option("--expand", help="List each job of an array that waits, as --json does.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List pending and running jobs.

    The jobs of an array that wait and do not differ are one row: sweep[64-9999].
    """
    if as_json and column_names is not None:
        raise BadInput("--columns: not allowed with --json, which prints all fields")
    if as_json and watch_s is not None:
        raise BadInput("--watch: not allowed with --json; GET /v1/events streams changes")
    shown = chosen_columns(column_names)
    selection = Selection.of(
        all_jobs, queue, user, phase or [], since, by_array=not (expand or as_json)
    )
    daemon = client(state)
    if watch_s is not None:
        watch(
            lambda most: partial(_lines, selection, shown, *selection.rows(daemon, most)), watch_s
        )
    rows, more = selection.rows(daemon)
    if as_json:
        print_json({"jobs": rows})
    else:
        typer.echo("\n".join(_lines(selection, shown, rows, more, time.time())))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which jobs are listed, as the query of `GET /v1/jobs` says it."""

    phases: tuple[str, ...]
    queue: str | None
    user: str | None
    since: float | None
    by_array: bool

    @classmethod
    def of(
        cls,
        all_jobs: bool,
        queue: str | None,
        user: str | None,
        phases: list[str],
        since: str | None,
        *,
        by_array: bool,
    ) -> "Selection":
        """From the options. Raises BadInput."""
        chosen = checked_words("--phase", phases, Phase)
        live = tuple(phase.value for phase in Phase if phase not in ENDED)
        return cls(
            chosen or (() if all_jobs else live),
            queue,
            user,
            seconds_since_epoch("--since", since, time.time()),
            by_array,
        )

    def rows(self, daemon: Client, most: int | None = None) -> tuple[list[Row], bool]:
        """Rows, at most so many, and whether there are more. Raises BadInput for a queue that there is not."""
        query: Any = {
            "phase": self.phases, "queue": self.queue, "user": self.user, "since": self.since,
            "by": "array" if self.by_array else None,
        }  # fmt: skip
        if most is None:
            rows, more = daemon.jobs(**query), False
        else:
            page = daemon.jobs_page(limit=most, **query)
            rows, more = page["jobs"], page["next"] is not None
        if not rows and self.queue is not None:
            _check_queue(daemon, self.queue)
        return rows, more

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves out jobs by more than their having ended."""
        return (self.queue, self.user, self.since) != (None, None, None)


def _check_queue(daemon: Client, queue: str) -> None:
    """Raise BadInput where neither the policy nor a job has such a queue."""
    names = [row["queue"] for row in daemon.queues() if row["kind"] == "queue"]
    if not any(f"{name}/".startswith(f"{queue}/") for name in names):
        raise unknown_word("--queue", queue, names)


def _lines(
    selection: Selection, shown: Sequence[Column], rows: list[Row], more: bool, now: float
) -> list[str]:
    """The table; a sentence where there is none, or more than it has."""
    if not rows:
        return [_nothing(selection)]
    cells = [[printable(column.cell(row, now)) for column in shown] for row in rows]
    table = columns([column.head for column in shown], cells).split("\n")
    if more:
        table[-1] = "... and more; a larger window, --queue, --user or --phase shows them"
    return table


def _nothing(selection: Selection) -> str:
    if selection.is_narrow:
        return "No such jobs."
    live = {phase.value for phase in Phase if phase not in ENDED}
    if set(selection.phases) == live:
        return "No pending or running jobs; --all includes ended ones."
    return "No jobs."
