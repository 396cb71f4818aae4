"""`gantree usage`: GPU-hours by purpose, hours waited and cost, by whom or what; GPU utilisation."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from gantree.accounting.buckets import DAY_S
from gantree.api.views.accounting.site_prices import at_prices
from gantree.cli.billing import command as billing
from gantree.cli.billing.command import StatementOptions
from gantree.cli.billing.months import month_of
from gantree.cli.billing.options import (
    BillOption,
    CompareCloudOption,
    FocusOption,
    HtmlOption,
    ParquetOption,
    PdfOption,
    ReconcileOption,
    StatementQueueOption,
)
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
from gantree.model.errors import BadInput

Row = dict[str, Any]
FIGURES = (
    "held_gpu_hours", "wasted_gpu_hours", "waited_hours", "USD", "unpriced_gpu_hours", "useful_gpu_hours",
    "idle_gpu_hours", "starting_gpu_hours", "restart_gpu_hours", "checkpoint_gpu_hours", "lost_gpu_hours",
    "unmeasured_gpu_hours", "useful_share", "estimated_gpu_hours",
)  # fmt: skip
NOT_HELD = ("down", "claimed", "reserved", "stranded", "free")
OVERHEAD = ("starting_gpu_hours", "restart_gpu_hours", "checkpoint_gpu_hours")
LEAST_SHOWN = 0.005
"""Of the allocated hours: the least part without counters that the first line names."""
GPU_FIGURES = ("held_gpus", "told_gpus", "busy", "least_busy", "memory_GiB", "power_W")


class By(StrEnum):
    """What a row stands for."""

    USER = "user"
    QUEUE = "queue"
    MODEL = "model"
    PROJECT = "project"
    DEVICE = "device"
    JOB = "job"


def usage(
    by: Annotated[
        By | None, typer.Option("--by", help="Group rows by this. [default: user]")
    ] = None,
    since: FirstDayOption = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Last day, in UTC. [default: today]")
    ] = None,
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="A month of UTC, instead of days.")
    ] = None,
    prices: DaemonPricesOption = None,
    bill: BillOption = False,
    queue: StatementQueueOption = None,
    html: HtmlOption = None,
    pdf: PdfOption = None,
    parquet: ParquetOption = None,
    focus: FocusOption = None,
    reconcile: ReconcileOption = None,
    compare_cloud: CompareCloudOption = False,
    gpus: Annotated[
        bool, typer.Option("--gpus", help="Show the current utilisation of allocated GPUs instead.")
    ] = False,
    as_csv: CsvOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report what GPU-hours were used for, and their cost.

    Also reports waiting times. The first line has the share of useful hours, and of allocated ones.
    """
    daemon, now = client(state), datetime.now(UTC).timestamp()
    options = StatementOptions(
        (by or By.USER).value,
        month,
        queue,
        prices,
        html,
        pdf,
        parquet,
        focus,
        reconcile,
        compare_cloud,
        bill,
    )
    if options.is_money:
        _refuse_beside_money(since=since, until=until, gpus=gpus)
        billing.run(daemon, options, now, as_csv=as_csv, as_json=as_json)
        return
    if gpus:
        _refuse_beside_gpus(by=by, since=since, until=until, month=month, prices=prices)
        _print_gpus(daemon.gpu_use(), as_csv=as_csv, as_json=as_json)
        return
    begin, end = _period(since, until, month, now)
    report = daemon.usage(options.by, since=begin, until=end)
    site = prices_of(prices)
    if site is not None:
        at_prices(report, site.tariff.prices)
    if as_json:
        print_json(report)
    elif as_csv:
        typer.echo(_csv(report), nl=False)
    else:
        typer.echo("\n".join(_lines(report)))


def _period(
    since: str | None, until: str | None, month: str | None, now: float
) -> tuple[float | None, float | None]:
    """The first and the last moment that are meant. Raises BadInput where they hold no day that has begun."""
    if month is not None:
        if since is not None or until is not None:
            raise BadInput("--month goes without --since and --until")
        meant = month_of(month, now)
        return float(meant.since), meant.until - 1.0
    begin = seconds_since_epoch("--since", since, now)
    end = seconds_since_epoch("--until", until, now)
    if begin is not None and begin // DAY_S > (now if end is None else end) // DAY_S:
        raise BadInput(f"--since: found {since}; allowed: a day up to {until or 'today'}")
    return begin, end


def _refuse_beside_money(**others: object) -> None:
    for name, given in others.items():
        if given:
            raise BadInput(f"--{name}: a statement is of a month; leave it out")


def _refuse_beside_gpus(**others: object) -> None:
    for name, given in others.items():
        if given:
            raise BadInput(
                f"--{name}: --gpus shows the running jobs as they are now; leave one of them out"
            )


def _print_gpus(report: Row, *, as_csv: bool, as_json: bool) -> None:
    if as_json:
        print_json(report)
    elif as_csv:
        typer.echo(_written(("job", *GPU_FIGURES), report["rows"], GPU_FIGURES), nl=False)
    elif not report["is_told"]:
        typer.echo("no GPU metrics: name exporters with gantree up --gpu-metrics URL")
    else:
        head = ("JOB", "QUEUE", "GPUS", "BUSY", "LEAST", "MEMORY GiB", "WATTS")
        typer.echo(columns(head, [_gpu_cells(row) for row in report["rows"]]))
        if any(row["is_shared"] for row in report["rows"]):
            typer.echo("+ uses parts of GPUs: figures include all jobs that share them")


def _gpu_cells(row: Row) -> tuple[str, ...]:
    report = "" if row["told_gpus"] == row["held_gpus"] else f" ({row['told_gpus']} tell)"
    shares = [_percent(row[name]) for name in ("busy", "least_busy")]
    sums = ["-" if row[name] is None else digits(row[name]) for name in ("memory_GiB", "power_W")]
    count = f"{row['held_gpus']}{'+' if row['is_shared'] else ''}{report}"
    return (row["name"], row["queue"], count, *shares, *sums)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _csv(report: Row) -> str:
    return _written((report["by"], *FIGURES), report["rows"], FIGURES)


def _written(head: Sequence[str], rows: Sequence[Row], figures: Sequence[str]) -> str:
    return csv_text(head, [(row["name"], *(row[figure] for figure in figures)) for row in rows])


def _lines(report: Row) -> Iterator[str]:
    yield _headline(report)
    head = (
        report["by"].upper(), "GPU-HOURS", "USEFUL", "%", "IDLE", "LOST", "START/STOP", "UNMEASURED", "WAITED h",
        "COST",
    )  # fmt: skip
    rows = [(row["name"] or "-", *_cells(row)) for row in report["rows"]]
    yield columns(head, [*rows, ("all", *_cells(report["sum"]))])
    if report["left_out"]:
        yield f"and {report['left_out']} more, included in the sum"
    if report["sum"]["unpriced_gpu_hours"]:
        hours = digits(report["sum"]["unpriced_gpu_hours"])
        yield f"{hours} GPU-hours are of models without a price; give one with --prices FILE"
    if report["sum"]["estimated_gpu_hours"]:
        hours = digits(report["sum"]["estimated_gpu_hours"])
        yield f"{hours} GPU-hours useful or idle are estimates: of shares, by the counters of the whole GPU"
    if report["by"] == By.JOB:
        yield "Each row is the usage of a job over its whole life."


def _headline(report: Row) -> str:
    """Useful of allocated and how much of it no counter showed, allocated of capacity, and what the rest was for."""
    held, useful = report["sum"]["held_gpu_hours"], report["sum"]["useful_share"]
    told = f"useful {_percent(useful)} of {_hours(held)} allocated GPU-hours"
    unmeasured = report["sum"]["unmeasured_gpu_hours"]
    if unmeasured and held and unmeasured / held >= LEAST_SHOWN:
        told += f" (unmeasured {_percent(unmeasured / held)})"
    capacity = report["capacity"]
    if capacity is None or not capacity["capacity_gpu_hours"]:
        return told
    there = capacity["capacity_gpu_hours"]
    rest = ", ".join(
        f"{name} {_percent(capacity[f'{name}_gpu_hours'] / there)}" for name in NOT_HELD
    )
    allocated = _percent(capacity["allocated_share"])
    return f"{told}; allocated {allocated} of {_hours(there)} GPU-hours ({rest})"


def _cells(row: Row) -> tuple[str, ...]:
    overhead = None if row[OVERHEAD[0]] is None else sum(row[name] for name in OVERHEAD)
    useful, share = _hours(row["useful_gpu_hours"]), _percent(row["useful_share"])
    amounts = (
        row["idle_gpu_hours"],
        row["lost_gpu_hours"],
        overhead,
        row["unmeasured_gpu_hours"],
        row["waited_hours"],
    )
    return (
        _hours(row["held_gpu_hours"]),
        useful,
        share,
        *map(_hours, amounts),
        dollars(row["USD"]),
    )


def _hours(hours: float | None) -> str:
    """Hours; corrections of earlier days may leave less than none."""
    if hours is None:
        return "-"
    return f"-{digits(-hours)}" if hours < 0.0 else digits(hours)
