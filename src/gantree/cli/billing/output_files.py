"""Writes what commands make to files: whole, or not at all."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from gantree.cli.output.csv_text import csv_text
from gantree.formats.traces.parquet import write_parquet
from gantree.model.errors import BadInput


def write_file(option: str, out: Path, content: bytes) -> None:
    """Write a file in place of what was there. Raises BadInput."""
    try:
        with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as directory:
            made = Path(directory, out.name)
            made.write_bytes(content)
            made.replace(out)
    except OSError as error:
        raise BadInput(f"{option}: {out}: {(error.strerror or str(error)).lower()}") from None


def write_rows(
    option: str,
    out: Path,
    types: Mapping[str, str],
    rows: Callable[[], Iterable[Sequence[object]]],
) -> None:
    """Write rows as Parquet if the name ends so, else as CSV. types: each column's type of SQL.

    Raises BadInput, and Unsupported where Parquet is not.
    """
    text = csv_text(list(types), rows())
    if out.suffix != ".parquet":
        write_file(option, out, text.encode())
        return
    with TemporaryDirectory(prefix="gantree-") as directory:
        given, made = Path(directory, "rows.csv"), Path(directory, "rows.parquet")
        given.write_text(text, encoding="utf-8")
        write_parquet(given, types, made)
        write_file(option, out, made.read_bytes())


def check_suffix(option: str, out: Path | None, suffixes: Sequence[str]) -> None:
    """Raise BadInput for a name with another ending, or in a directory that is not there, before any work."""
    if out is None:
        return
    if out.suffix not in suffixes:
        raise BadInput(
            f"{option}: found {out}; allowed: a file name that ends with {' or '.join(suffixes)}"
        )
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise BadInput(f"{option}: {out.parent}: no directory that can be written to")
