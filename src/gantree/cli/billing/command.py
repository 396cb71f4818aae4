"""What `gantree usage` does where it is asked for money: a statement of a month, FOCUS, an invoice, clouds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import typer

from gantree.accounting.billing.cloud_comparison import compared
from gantree.accounting.billing.reconciliation import reconciled
from gantree.accounting.billing.statement import By, Statement, statement
from gantree.api.client.client import Client
from gantree.cli.billing.comparison_report import (
    comparison_json,
    comparison_lines,
    differences_json,
    differences_lines,
)
from gantree.cli.billing.focus import COLUMNS, csv_cells, focus_rows
from gantree.cli.billing.months import month_of
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
class Asked:
    """The options of money."""

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
        files = (self.html, self.pdf, self.parquet, self.focus)
        told = any(each is not None for each in (*files, self.queue, self.reconcile))
        return told or self.compare_cloud or self.bill


def run(daemon: Client, asked: Asked, now: float, *, as_csv: bool, as_json: bool) -> None:
    """Make what was asked for. Raises GantreeError."""
    _check(asked)
    month = month_of(asked.month, now)
    prices = prices_of(asked.prices)
    priced = priced_month(daemon, month, prices)
    if asked.reconcile is not None:
        _reconcile(priced, asked.reconcile, as_csv=as_csv, as_json=as_json)
    elif asked.compare_cloud:
        rows = compared(priced.rows, priced.bill, priced.tariff)
        if as_json:
            print_json({"period": str(month), "rows": comparison_json(rows)})
        else:
            typer.echo("\n".join(comparison_lines(rows, month.words)))
    else:
        before = priced_month(daemon, month.before, prices)
        _state(daemon, priced, before, asked, as_csv=as_csv, as_json=as_json)


def _check(asked: Asked) -> None:
    if asked.by not in DIMENSIONS:
        raise BadInput(f"--by: found {asked.by}; a statement is by {', '.join(DIMENSIONS)}")
    if asked.reconcile is not None and asked.compare_cloud:
        raise BadInput("--reconcile and --compare-cloud: give one of them")
    check_suffix("--html", asked.html, (".html", ".htm"))
    check_suffix("--pdf", asked.pdf, (".pdf",))
    check_suffix("--parquet", asked.parquet, (".parquet",))
    check_suffix("--focus", asked.focus, (".csv", ".parquet"))


def _state(
    daemon: Client,
    priced: PricedMonth,
    before: PricedMonth,
    asked: Asked,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    queue, period = asked.queue or "", str(priced.month)
    made = statement(
        priced.rows, priced.bill, priced.tariff, cast(By, asked.by), queue, before.bill
    )
    if queue and not made.rows:
        _refuse_unknown(daemon, queue)
    _write_tables(priced, made, asked, period)
    if asked.html is not None or asked.pdf is not None:
        jobs = ended_jobs(daemon, priced.month, queue)
        report = report_of(made, priced.site, priced.month.words, priced.now, jobs)
        _write_report("--html", asked.html, lambda: html_of(report).encode())
        _write_report("--pdf", asked.pdf, lambda: pdf_of(report))
    if as_json:
        print_json(statement_json(made, period, priced.site))
    elif as_csv:
        typer.echo(csv_text(list(TYPES), table_rows(made, period)), nl=False)
    elif not any((asked.html, asked.pdf, asked.parquet, asked.focus)):
        typer.echo("\n".join(statement_lines(made, priced.month.words)))


def _refuse_unknown(daemon: Client, queue: str) -> None:
    """Raise BadInput for a queue that the policy does not have; one that was used is on record."""
    known = [row["queue"] for row in daemon.queues() if row["queue"]]
    if queue not in known:
        hint = did_you_mean(queue, known)
        raise BadInput(
            f"--queue: no queue {queue!r}, and none is on record in this month. {hint}".strip()
        )


def _write_tables(priced: PricedMonth, made: Statement, asked: Asked, period: str) -> None:
    if asked.parquet is not None:
        write_rows("--parquet", asked.parquet, TYPES, lambda: table_rows(made, period))
        _say(asked.parquet)
    if asked.focus is not None:
        rows = focus_rows(priced.bill, priced.tariff, priced.site)
        write_rows("--focus", asked.focus, COLUMNS, lambda: csv_cells(rows))
        _say(asked.focus)


def _write_report(option: str, out: Path | None, content: Callable[[], bytes]) -> None:
    if out is not None:
        write_file(option, out, content())
        _say(out)


def _say(out: Path) -> None:
    typer.echo(f"wrote {out}", err=True)


def _reconcile(priced: PricedMonth, invoice: str, *, as_csv: bool, as_json: bool) -> None:
    lines = read_invoice(read_text(invoice), source_of(invoice), priced.tariff.skus)
    found = reconciled(priced.bill, lines)
    if as_json:
        print_json({"period": str(priced.month), "rows": differences_json(found)})
    elif as_csv:
        rows = differences_json(found)
        head = list(rows[0]) if rows else []
        typer.echo(
            csv_text(head, [["" if v is None else v for v in row.values()] for row in rows]),
            nl=False,
        )
    else:
        typer.echo("\n".join(differences_lines(found, priced.month.words)))
