"""`gantree history use`, `queues`, `preemptions` and `waits`: figures of a period as tables with sparklines."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.input.moments import ALLOWED, seconds_since_epoch
from gantree.cli.options import CsvOption, JsonOption, StateOption
from gantree.cli.output.csv_text import csv_text
from gantree.cli.output.figures import digits
from gantree.cli.output.printing import columns, print_json, span

Row = dict[str, Any]
Cells = Sequence[tuple[str, ...]]
BARS = "▁▂▃▄▅▆▇█"
WIDEST = 60
"""Characters of a sparkline."""
END_HEADS = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED OUT")
ENDS = ("succeeded", "failed", "cancelled", "timed_out")


class Step(StrEnum):
    """The width of a row."""

    MINUTE = "minute"
    FIVE_MINUTES = "5min"
    HOUR = "hour"
    SIX_HOURS = "6h"
    DAY = "day"
    WEEK = "week"


Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help=f"From then on: {ALLOWED}.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Until then.")]
By = Annotated[
    Step | None,
    typer.Option("--by", help="Width of a step: minutes for 12 hours, hours for 30 days."),
]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Of it, and all below it.")
]
User = Annotated[str | None, typer.Option("--user", metavar="NAME")]


def use(
    since: Since = None,
    until: Until = None,
    by: By = None,
    queue: Queue = None,
    user: User = None,
    as_csv: CsvOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show allocated and used GPUs over time, starts and ends."""
    found = client(state).usage_history("all", **_asked(since, until, by, queue, user))
    head = ("TIME", "GPUS", "ALLOCATED", "USED", "LOST GPU-H", "STARTED", *END_HEADS)
    series = _series(found)
    line = series["allocated_gpu_s"]
    _print(found, head, _use_rows(found, series), as_csv=as_csv, as_json=as_json, line=line)


def queues(
    since: Since = None,
    until: Until = None,
    by: By = None,
    queue: Queue = None,
    user: User = None,
    as_csv: CsvOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the share of each queue in what was allocated."""
    found = client(state).usage_history("queue", **_asked(since, until, by, queue, user))
    total = sum(sum(row["allocated_gpu_s"]) for row in found["rows"])
    rows = [
        (row["name"], digits(sum(row["allocated_gpu_s"]) / 3600), _percent(sum(row["allocated_gpu_s"]), total),
         digits(sum(row["lost_gpu_s"]) / 3600), str(sum(row["submitted"])), *_ends(row),
         sparkline(row["allocated_gpu_s"]))
        for row in found["rows"]
    ]  # fmt: skip
    head = ("QUEUE", "GPU-HOURS", "SHARE", "LOST GPU-H", "SUBMITTED", *END_HEADS, "OVER TIME")
    _print(found, head, rows, as_csv=as_csv, as_json=as_json)


def preemptions(
    since: Since = None,
    until: Until = None,
    by: By = None,
    queue: Queue = None,
    user: User = None,
    as_csv: CsvOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show preemptions over time, and the work that was done again."""
    found = client(state).usage_history("all", **_asked(since, until, by, queue, user))
    series = _series(found)
    rows = [
        (_time(start, found["step_s"]), str(preempted), digits(lost / 3600))
        for start, preempted, lost in zip(found["starts"], series["preempted"], series["lost_gpu_s"], strict=True)
    ]  # fmt: skip
    head = ("TIME", "PREEMPTIONS", "LOST GPU-H")
    _print(found, head, rows, as_csv=as_csv, as_json=as_json, line=series["preempted"])


def waits(
    since: Since = None,
    until: Until = None,
    by: By = None,
    queue: Queue = None,
    user: User = None,
    as_csv: CsvOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how long jobs waited before their first start, by queue.

    Time on hold does not count.
    """
    found = client(state).wait_history("queue", **_asked(since, until, by, queue, user))
    rows = [
        (row["name"], str(row["all"]["jobs"]), *(_span(row["all"][name]) for name in ("mean_s", "p50_s", "p99_s")),
         sparkline([step["p50_s"] or 0.0 for step in row["steps"]]))
        for row in found["rows"]
    ]  # fmt: skip
    head = ("QUEUE", "JOBS", "MEAN", "P50", "P99", "P50 OVER TIME")
    _print(found, head, rows, as_csv=as_csv, as_json=as_json)


def sparkline(figures: Sequence[float]) -> str:
    """Figures as bars, the highest as high as a line; several in one bar where there are many."""
    each = -(-len(figures) // WIDEST)
    sums = [sum(figures[place : place + each]) for place in range(0, len(figures), each or 1)]
    top = max(sums, default=0.0)
    return "".join(" " if not each else BARS[min(7, int(8 * each / top))] for each in sums)


def _asked(
    since: str | None, until: str | None, by: Step | None, queue: str | None, user: str | None
) -> Row:
    """What the daemon is asked for."""
    now = time.time()
    return {
        "since": seconds_since_epoch("--since", since, now),
        "until": seconds_since_epoch("--until", until, now),
        "step": None if by is None else by.value,
        "queue": queue,
        "user": user,
    }


def _series(found: Row) -> dict[str, list[Any]]:
    """The lists of the one row for all; zeros where nothing ever was."""
    nothing: list[Any] = [0] * len(found["starts"])
    names = [f"{name}_gpu_s" for name in ("capacity", "allocated", "used", "lost")]
    names += ["started", *ENDS, "preempted"]
    row = found["rows"][0] if found["rows"] else {}
    return {name: row.get(name, nothing) for name in names}


def _use_rows(found: Row, series: dict[str, list[Any]]) -> Cells:
    """One line a step: GPUs on average."""
    rows: list[tuple[str, ...]] = []
    for place, start in enumerate(found["starts"]):
        seconds = min(found["until"], start + found["step_s"]) - start or 1
        there, held, used = (
            series[f"{name}_gpu_s"][place] / seconds for name in ("capacity", "allocated", "used")
        )
        shares = [f"{digits(gpus)} ({_percent(gpus, there)})" for gpus in (held, used)]
        events = [str(series[name][place]) for name in ("started", *ENDS)]
        lost = digits(series["lost_gpu_s"][place] / 3600)
        rows.append((_time(start, found["step_s"]), digits(there), *shares, lost, *events))
    return rows


def _ends(row: Row) -> list[str]:
    return [str(sum(row[name])) for name in ENDS]


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


def _time(start: int, step_s: int) -> str:
    """The beginning of a step, in UTC as steps are."""
    form = "%Y-%m-%d" if step_s >= 86_400 else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(start, UTC).strftime(form)


def _print(
    found: Row,
    head: Sequence[str],
    rows: Cells,
    *,
    as_csv: bool,
    as_json: bool,
    line: Sequence[float] | None = None,
) -> None:
    if as_json:
        print_json(found)
    elif as_csv:
        typer.echo(csv_text([each.lower() for each in head], rows), nl=False)
    elif not rows:
        typer.echo("Nothing is on record of this period.")
    else:
        typer.echo(columns(head, rows))
        if line is not None and any(line):
            typer.echo(f"{_time(found['starts'][0], found['step_s'])}  {sparkline(line)}")
