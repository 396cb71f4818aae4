"""CSV files as lines of cells: plain and gzipped, of bounded length, with what is wrong with a file as a whole.

Lines are read by Python's `csv`, which knows the line that a row ends in (docs/decisions, record 70).
"""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import TextIOBase
from pathlib import Path
from typing import TextIO

from gantree.formats.traces.table import MAX_COLUMNS, Line
from gantree.model.errors import BadFields, NotFound, Problem

MAX_LINE_CHARS = 64 * 1024
MAX_EMPTY_LINES = 100_000


def table_of(
    lines: Iterable[str], source: str, delimiters: str = ","
) -> tuple[list[str], Iterator[Line]]:
    """The header of a table and its lines after it. The delimiter is the first of `delimiters` that is in the header.

    Raises BadFields, also while lines are taken.
    """
    bounded = _of_bounded_length(lines, source)
    first = next(bounded, "")
    delimiter = next((each for each in delimiters if each in first), delimiters[0])
    reader = csv.reader(_again(first, bounded), delimiter=delimiter, strict=True)
    with _told(reader, source):
        header = [column.strip() for column in next(reader, [])]
    if len(header) > MAX_COLUMNS:
        allowed = f"at most {MAX_COLUMNS} columns"
        raise BadFields([Problem(source, 1, "row", f"{len(header)} columns", allowed)])
    return header, _lines(reader, source)


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _lines(reader: "csv._reader", source: str) -> Iterator[Line]:  # type: ignore[name-defined]  # no public type
    with _told(reader, source):
        for cells in reader:
            if cells:
                yield reader.line_num, cells


@contextmanager
def _told(reader: "csv._reader", source: str) -> Iterator[None]:  # type: ignore[name-defined]  # no public type
    try:
        yield
    except csv.Error as error:
        raise BadFields([Problem(source, reader.line_num, "row", str(error), "CSV")]) from None


def _of_bounded_length(lines: Iterable[str], source: str) -> Iterator[str]:
    """Give lines as they are. A device, or a small archive, may have one that never ends, or nothing but empty ones."""
    if isinstance(lines, TextIOBase):
        lines = iter(partial(lines.readline, MAX_LINE_CHARS + 1), "")
    empty = 0
    for number, line in enumerate(lines, start=1):
        if len(line) > MAX_LINE_CHARS:
            allowed = f"at most {MAX_LINE_CHARS} characters"
            raise BadFields([Problem(source, number, "row", "a longer line", allowed)])
        empty += line.isspace()
        if empty > MAX_EMPTY_LINES:
            found = f"more than {MAX_EMPTY_LINES} empty lines"
            raise BadFields([Problem(source, number, "row", found, "one job per line")])
        yield line


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a file as text, and tell what is wrong with it as a whole. Raises NotFound and BadFields."""
    try:
        if path.suffix == ".gz":
            file: TextIO = gzip.open(path, "rt", encoding="utf-8-sig", newline="")  # noqa: SIM115 - closed below
        else:
            file = path.open(encoding="utf-8-sig", newline="")
        with file:
            yield file
    except UnicodeDecodeError as error:
        raise bad_file(path, f"the byte 0x{error.object[error.start]:02x}", "UTF-8 text") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise bad_file(path, str(error), "a whole gzip file") from None
    except OSError as error:
        raise NotFound(f"{path}: cannot be read: {error.strerror}.") from error


def bad_file(path: Path, found: str, allowed: str) -> BadFields:
    """The error for a file that is wrong as a whole."""
    return BadFields([Problem(str(path), None, "document", found, allowed)])
