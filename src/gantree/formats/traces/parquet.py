"""Parquet files as lines of cells, and written from a CSV file, both by DuckDB. A line is the number of a row."""

from collections.abc import Generator, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from gantree.formats.traces.database import connected, quoted
from gantree.formats.traces.table import MAX_COLUMNS, Line
from gantree.formats.traces.text_file import bad_file
from gantree.model.errors import BadFields, NotFound, Problem

MAGIC = b"PAR1"
ROWS_AT_ONCE = 4096


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, whatever it is called. Raises NotFound where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC or path.suffix == ".parquet"
    except OSError as error:
        raise NotFound(f"{path}: cannot be read: {error.strerror}.") from error


def header_of(path: Path) -> list[str]:
    """The names of a file's columns. Raises BadFields and Unsupported."""
    rows = _rows(path, "LIMIT 0")
    header = [str(name) for name in next(rows)]
    rows.close()
    if len(header) > MAX_COLUMNS:
        allowed = f"at most {MAX_COLUMNS} columns"
        raise BadFields([Problem(str(path), 1, "row", f"{len(header)} columns", allowed)])
    return header


def lines_of(path: Path) -> Iterator[Line]:
    """The rows of a file as text, numbered from 1. Raises BadFields and Unsupported."""
    rows = _rows(path)
    next(rows)
    for number, row in enumerate(rows, start=1):
        yield number, [_text(value) for value in row]


def _rows(path: Path, rest: str = "") -> Generator[tuple[Any, ...], None, None]:
    """The names of the columns, and then the rows."""
    with connected("Parquet files") as database:
        import duckdb  # noqa: PLC0415 - an extra; it is there, since the database is

        try:
            found = database.execute(f"SELECT * FROM read_parquet({quoted(str(path))}) {rest}")  # noqa: S608 - quoted
            yield tuple(column[0] for column in found.description or ())
            while batch := found.fetchmany(ROWS_AT_ONCE):
                yield from batch
        except duckdb.Error as error:
            wrong = str(error).splitlines()[0].replace(f"'{path}' ", "")
            raise bad_file(path, wrong, "a Parquet file") from None


def _text(value: Any) -> str:
    """A value as a cell of a CSV file would hold it. Counts that were stored as floats or decimals lose their `.0`."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value).removesuffix(".0")
        case Decimal():
            return f"{value.normalize():f}"
        case datetime():
            return value.isoformat(sep=" ")
        case _:
            return str(value)


def write_parquet(csv_file: Path, types: Mapping[str, str], out: Path) -> None:
    """Write the rows of a CSV file with these columns and types of SQL; an empty cell becomes NULL.

    Equal rows give equal bytes, with the same version of DuckDB. Raises Unsupported.
    """
    named = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in types.items())
    settings = "header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"'"
    source = f"read_csv({quoted(str(csv_file))}, columns = {{{named}}}, nullstr = '', {settings})"
    with connected("Parquet files") as database:
        database.execute(
            f"COPY (SELECT * FROM {source}) TO {quoted(str(out))} (FORMAT parquet, COMPRESSION zstd)"  # noqa: S608 - quoted
        )
