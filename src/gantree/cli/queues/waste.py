"""`gantree waste`: jobs, or sums of them, by wasted GPU-hours and money, each with its reason and its remedy."""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from gantree.api.views.accounting.site_prices import at_prices, dearest_first
from gantree.cli.daemon_client import client
from gantree.cli.input.moments import FirstDayOption, seconds_since_epoch
from gantree.cli.input.prices import prices_of
from gantree.cli.options import (
    CsvOption,
    DaemonPricesOption,
    JsonOption,
    StateOption,
)
from gantree.cli.output.csv_text import csv_text
from gantree.cli.output.figures import digits, dollars
from gantree.cli.output.printing import columns, print_json
from gantree.topology.hardware.prices import PriceList

Row = dict[str, Any]
FIGURES = (
    "user", "queue", "project", "running", "jobs", "held_gpu_hours", "useful_gpu_hours", "wasted_gpu_hours", "USD",
    "unpriced_gpu_hours", "unused_cpu_hours", "unused_memory_GiB", "kind", "reason", "remedy",
)  # fmt: skip
MOST = 10_000


class By(StrEnum):
    """What a row stands for."""

    JOB = "job"
    USER = "user"
    QUEUE = "queue"
    PROJECT = "project"


def waste(
    by: Annotated[By, typer.Option("--by", help="Group rows by this.")] = By.JOB,
    since: FirstDayOption = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="Rows at most.")] = 20,
    prices: DaemonPricesOption = None,
    as_csv: CsvOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs by what they waste, why, and what to do about it.

    Wasted are GPU-hours whose work was done again, in which the GPUs did not compute, or which a smaller device would
    have saved.
    """
    now, site = datetime.now(UTC).timestamp(), prices_of(prices)
    report = client(state).waste(
        by.value,
        since=seconds_since_epoch("--since", since, now),
        limit=limit if site is None else MOST,
    )
    if site is not None:
        reprice(report, site.tariff.prices, limit)
    if as_json:
        print_json(report)
    elif as_csv:
        typer.echo(_csv(report), nl=False)
    else:
        typer.echo("\n".join(_lines(report)))


def reprice(report: Row, prices: PriceList, limit: int) -> None:
    """Price an answer with all of its rows anew, and leave those that are then the dearest."""
    at_prices(report, prices, "wasted")
    rows = sorted(report["rows"], key=dearest_first)
    report["rows"] = rows[:limit]
    report["left_out"] += len(rows[limit:])


def _csv(report: Row) -> str:
    figures = [name for name in FIGURES if name != report["by"]]
    rows = [(row["name"], *(row[name] for name in figures)) for row in report["rows"]]
    return csv_text((report["by"], *figures), rows)


def _lines(report: Row) -> Iterator[str]:
    head = (report["by"].upper(), "HELD h", "WASTED h", "COST", "REASON")
    rows = [(row["name"] or "-", *_cells(row), row["reason"]) for row in report["rows"]]
    whole = report["sum"]
    yield columns(head, [*rows, ("all", *_cells(whole), _of_all(whole))])
    if report["left_out"]:
        yield f"and {report['left_out']} more; --limit N shows them"
    for row in report["rows"]:
        yield f"{row['worst'] or row['name']}: {row['remedy']}"
    if whole["unpriced_gpu_hours"]:
        hours = digits(whole["unpriced_gpu_hours"])
        yield f"{hours} wasted GPU-hours are of models without a price; give one with --prices FILE"


def _cells(row: Row) -> tuple[str, ...]:
    wasted = digits(row["wasted_gpu_hours"])
    return (digits(row["held_gpu_hours"]), wasted, dollars(row["USD"]))


def _of_all(whole: Row) -> str:
    """How much of what was held was wasted."""
    if not whole["held_gpu_hours"]:
        return ""
    return f"{whole['wasted_gpu_hours'] / whole['held_gpu_hours']:.0%} of what was held"
