"""CSV text of any dialect to rows with line numbers. Readers interpret the columns.

The separator is the one of comma, semicolon, tab and bar that the header line has most of. Empty lines, and lines that
begin with `#`, are passed over.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from gantree.model.errors import BadFields, BadInput, Problem
from gantree.text.records import MAX_PROBLEMS, Report
from gantree.text.words import plural, shortened

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MAX_COLUMNS = 256
MAX_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its line and its cells, without blanks around them, as many as there are columns."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: the line of the header, the columns as written, the rows, and the word for what separates cells."""

    header_line: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    separated_by: str


def read_sheet(text: str, source: str) -> Sheet:
    """Return the table of a text. BadInput for none; BadFields, with lines, for rows of another length."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = next((line for line in lines if _says_something(line)), None)
    separator = max(SEPARATORS, key=(first or "").count)
    found = list(_rows(lines, separator, source))
    if not found:
        raise BadInput(f"{source}: the text is empty; give CSV with a header line")
    header, rows = found[0], found[1:]
    report = Report(source)
    _check_header(header, report)
    for row in rows:
        if len(row.cells) != len(header.cells) and len(report.problems) < MAX_PROBLEMS:
            wanted = f"{len(header.cells)}, as in the header (line {header.line})"
            report.add(row.line, "row", f"{plural(len(row.cells), 'cell')}", wanted)
    if len(rows) > MAX_ROWS:
        report.add(None, "document", "more rows", f"at most {MAX_ROWS}")
    report.check()
    if not rows:
        raise BadInput(f"{source}: there is a header (line {header.line}) and no row below it")
    return Sheet(header.line, header.cells, tuple(rows), SEPARATORS[separator])


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _rows(lines: list[str], separator: str, source: str) -> Iterator[Row]:
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    before = count = 0
    try:
        for cells in reader:
            line, before = before + 1, reader.line_num
            given = [cell.strip() for cell in cells]
            if any(given) and not given[0].startswith("#"):
                yield Row(line, tuple(given))
                count += 1
            if count > MAX_ROWS + 1:
                return
    except csv.Error as error:
        problem = Problem(source, before + 1, "row", str(error), "CSV")
        raise BadFields([problem]) from None


def _check_header(header: Row, report: Report) -> None:
    if len(header.cells) > MAX_COLUMNS:
        allowed = f"at most {MAX_COLUMNS} columns"
        report.add(header.line, "header", f"{len(header.cells)} columns", allowed)
        report.check()
    seen = set()
    for number, cell in enumerate(header.cells, 1):
        if not cell:
            report.add(header.line, f"column {number}", "no title", "a title for each column")
        elif cell.lower() in seen:
            report.add(header.line, f"column {shortened(cell)}", "it again", "each title once")
        seen.add(cell.lower())
