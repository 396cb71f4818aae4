"""`gantree usage` of a month in money: its statement, FOCUS, beside an invoice, beside clouds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import typer

from gantree.accounting.billing.cloud_comparison import compared
from gantree.accounting.billing.reconciliation import InvoiceLine, reconciled
from gantree.accounting.billing.statement import By, Statement, statement
from gantree.api.client.client import Client
from gantree.cli.billing.comparison_report import (
    comparison_cells,
    comparison_json,
    comparison_lines,
    day_text,
    differences_json,
    differences_lines,
)
from gantree.cli.billing.focus import COLUMNS, csv_cells, focus_rows
from gantree.cli.billing.months import Month, month_of
from gantree.cli.billing.output_files import check_suffix, write_file, write_rows
from gantree.cli.billing.read_book import PricedMonth, ended_jobs, priced_month
from gantree.cli.billing.statement_report import report_of
from gantree.cli.billing.statement_rows import TYPES, statement_json, statement_lines, table_rows
from gantree.cli.input.files import read_text, source_of
from gantree.cli.input.prices import prices_of
from gantree.cli.output.csv_text import csv_text
from gantree.cli.output.printing import print_json
from gantree.cli.report.html import html_of
from gantree.cli.report.pdf import pdf_of
from gantree.formats.invoices import read_invoice
from gantree.model.errors import BadInput
from gantree.text.words import did_you_mean

DIMENSIONS = ("queue", "user", "project", "model", "device")


@dataclass(frozen=True, slots=True)
class StatementOptions:
    """The options of `gantree usage` that concern money; by is a dimension of statements."""

    by: str
    month: str | None = None
    queue: str | None = None
    prices: str | None = None
    html: Path | None = None
    pdf: Path | None = None
    parquet: Path | None = None
    focus: Path | None = None
    reconcile: str | None = None
    compare_cloud: bool = False
    bill: bool = False

    @property
    def is_money(self) -> bool:
        """Whether any of them, beside prices and the month, was given."""
        return bool(self.of_statements) or self.is_comparison or self.bill

    @property
    def is_comparison(self) -> bool:
        """Whether the month is compared with something, and no statement is made."""
        return self.reconcile is not None or self.compare_cloud

    @property
    def of_statements(self) -> list[str]:
        """The options given that only a statement has."""
        names = ("queue", "html", "pdf", "parquet", "focus")
        return [f"--{name}" for name in names if getattr(self, name) is not None]


def run(
    daemon: Client, options: StatementOptions, now: float, *, as_csv: bool, as_json: bool
) -> None:
    """Print the statement or the comparison, and write the files. Raises GantreeError."""
    _check(options)
    month = month_of(options.month, now)
    prices = prices_of(options.prices)
    priced = priced_month(daemon, month, prices)
    if options.reconcile is not None:
        _reconcile(priced, options.reconcile, as_csv=as_csv, as_json=as_json)
    elif options.compare_cloud:
        _compare(priced, as_csv=as_csv, as_json=as_json)
    else:
        before = priced_month(daemon, month.before, prices)
        _state(daemon, priced, before, options, as_csv=as_csv, as_json=as_json)


def _check(options: StatementOptions) -> None:
    if options.by not in DIMENSIONS:
        raise BadInput(f"--by: found {options.by}; a statement is by {', '.join(DIMENSIONS)}")
    if options.reconcile is not None and options.compare_cloud:
        raise BadInput("--reconcile and --compare-cloud: give one of them")
    if options.is_comparison and options.of_statements:
        which = "--compare-cloud" if options.compare_cloud else "--reconcile"
        raise BadInput(f"{options.of_statements[0]}: a statement has it; leave out {which}")
    check_suffix("--html", options.html, (".html", ".htm"))
    check_suffix("--pdf", options.pdf, (".pdf",))
    check_suffix("--parquet", options.parquet, (".parquet",))
    check_suffix("--focus", options.focus, (".csv", ".parquet"))


def _state(
    daemon: Client,
    priced: PricedMonth,
    before: PricedMonth,
    options: StatementOptions,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    queue, period = options.queue or "", str(priced.month)
    made = statement(
        priced.rows, priced.bill, priced.tariff, cast(By, options.by), queue, before.bill
    )
    if queue and not made.rows:
        _refuse_unknown(daemon, queue)
    _write_tables(priced, made, options, period)
    if options.html is not None or options.pdf is not None:
        jobs = ended_jobs(daemon, priced.month, queue)
        report = report_of(made, priced.site, priced.month.words, priced.now, jobs)
        _write_report("--html", options.html, lambda: html_of(report).encode())
        _write_report("--pdf", options.pdf, lambda: pdf_of(report))
    if as_json:
        print_json(statement_json(made, period, priced.site))
    elif as_csv:
        typer.echo(csv_text(list(TYPES), table_rows(made, period)), nl=False)
    elif not any((options.html, options.pdf, options.parquet, options.focus)):
        typer.echo("\n".join(statement_lines(made, priced.month.words)))


def _refuse_unknown(daemon: Client, queue: str) -> None:
    """Raise BadInput for a queue that the policy does not have; one that was used is on record."""
    known = [row["queue"] for row in daemon.queues() if row["queue"]]
    if queue not in known:
        hint = did_you_mean(queue, known)
        raise BadInput(
            f"--queue: no queue {queue!r}, and none is on record in this month. {hint}".strip()
        )


def _write_tables(
    priced: PricedMonth, made: Statement, options: StatementOptions, period: str
) -> None:
    if options.parquet is not None:
        write_rows("--parquet", options.parquet, TYPES, lambda: table_rows(made, period))
        _say(options.parquet)
    if options.focus is not None:
        rows = focus_rows(priced.bill, priced.tariff, priced.site)
        write_rows("--focus", options.focus, COLUMNS, lambda: csv_cells(rows))
        _say(options.focus)


def _write_report(option: str, out: Path | None, content: Callable[[], bytes]) -> None:
    if out is not None:
        write_file(option, out, content())
        _say(out)


def _say(out: Path) -> None:
    typer.echo(f"wrote {out}", err=True)


def _reconcile(priced: PricedMonth, invoice: str, *, as_csv: bool, as_json: bool) -> None:
    lines = read_invoice(read_text(invoice), source_of(invoice), priced.tariff.skus)
    _refuse_other_months(lines, priced.month, invoice)
    found = reconciled(priced.bill, lines)
    if as_json:
        print_json({"period": str(priced.month), "rows": differences_json(found)})
    elif as_csv:
        _print_csv(differences_json(found))
    else:
        typer.echo("\n".join(differences_lines(found, priced.month.words)))


def _refuse_other_months(lines: Sequence[InvoiceLine], month: Month, invoice: str) -> None:
    """Raise BadInput for an invoice that has nothing of the month: all of the bill would differ."""
    if any(line.since < month.until and line.until > month.since for line in lines):
        return
    why = "it has no rows"
    if lines:
        first, last = min(line.since for line in lines), max(line.until for line in lines) - 1
        why = f"its rows are of {day_text(first)} to {day_text(last)}; --month names the month"
    raise BadInput(f"{source_of(invoice)}: no row is of {month.words}: {why}")


def _compare(priced: PricedMonth, *, as_csv: bool, as_json: bool) -> None:
    rows = compared(priced.rows, priced.bill, priced.tariff)
    if as_json:
        print_json({"period": str(priced.month), "rows": comparison_json(rows)})
    elif as_csv:
        _print_csv(comparison_cells(rows))
    else:
        typer.echo("\n".join(comparison_lines(rows, priced.month.words)))


def _print_csv(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows under the names of the first; an amount that is not known is an empty cell."""
    head = list(rows[0]) if rows else []
    typer.echo(csv_text(head, [list(row.values()) for row in rows]), nl=False)
