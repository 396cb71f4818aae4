"""A report as text for a terminal."""

from collections.abc import Iterator

from gantree.cli.output.printing import columns
from gantree.cli.report.document import Report, Table


def text_of(report: Report) -> str:
    """Its lines. How figures were calculated is in the files."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.title}: {report.subtitle}"
    yield from (f"{name}: {value}" for name, value in report.facts)
    yield from (f"  {figure}  {words}" for figure, words in report.headlines)
    for table in report.tables:
        yield ""
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield table.title
    rows = [*table.rows, *([table.total] if table.total else [])]
    yield columns([column.title.upper() for column in table.columns], [tuple(row) for row in rows])
