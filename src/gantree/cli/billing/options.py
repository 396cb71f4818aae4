"""The options of `gantree usage` that make a statement of it."""

from pathlib import Path
from typing import Annotated

import typer

BillOption = Annotated[
    bool,
    typer.Option("--bill", help="Make a statement of a month (default this): all that is charged."),
]
StatementQueueOption = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="The statement of a queue and all below it."),
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the statement as HTML.")
]
PdfOption = Annotated[
    Path | None, typer.Option("--pdf", metavar="FILE", help="Write the statement as PDF.")
]
ParquetOption = Annotated[
    Path | None,
    typer.Option("--parquet", metavar="FILE", help="Write the statement's rows as Parquet."),
]
FocusOption = Annotated[
    Path | None,
    typer.Option(
        "--focus", metavar="FILE", help="Write the bill as FOCUS, to a file of .csv or .parquet."
    ),
]
ReconcileOption = Annotated[
    str | None,
    typer.Option("--reconcile", metavar="INVOICE", help="Compare with the invoice of a cloud."),
]
CompareCloudOption = Annotated[
    bool, typer.Option("--compare-cloud", help="Compare with list prices of clouds.")
]
