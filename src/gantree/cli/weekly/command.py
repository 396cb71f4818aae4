"""`gantree report`: a week of the fleet, for people, as HTML or as PDF."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.billing.output_files import check_suffix, write_file
from gantree.cli.daemon_client import client
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import print_json
from gantree.cli.report.html import html_of
from gantree.cli.report.pdf import pdf_of
from gantree.cli.report.text import text_of
from gantree.cli.weekly.figures import json_of, read, week_of
from gantree.cli.weekly.report import report_of


def report(
    week: Annotated[
        str | None,
        typer.Option("--week", metavar="WEEK", help="A week of ISO 8601 [default: the last one]"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write HTML to this file.")
    ] = None,
    pdf: Annotated[
        Path | None, typer.Option("--pdf", metavar="FILE", help="Write PDF to this file.")
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report a week of the fleet: what GPU time was for, budgets, waste, sick nodes."""
    check_suffix("--html", html, (".html", ".htm"))
    check_suffix("--pdf", pdf, (".pdf",))
    now = datetime.now(UTC).timestamp()
    figures = read(client(state), week_of(week, now), now)
    made = report_of(figures)
    if html is not None:
        write_file("--html", html, html_of(made).encode())
        typer.echo(f"wrote {html}", err=True)
    if pdf is not None:
        write_file("--pdf", pdf, pdf_of(made))
        typer.echo(f"wrote {pdf}", err=True)
    if as_json:
        print_json(json_of(figures))
    elif html is None and pdf is None:
        typer.echo(text_of(made))
