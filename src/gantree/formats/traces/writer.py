"""Traces as files: CSV, gzipped CSV and Parquet, in gantree's own columns. Reading gives the same jobs again.

Optional columns that no job uses are left out. Rows pass through a temporary file beside the target, so a trace needs
no memory for all its rows, and a file that is there is replaced whole or not at all.
"""

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from io import TextIOWrapper
from itertools import compress
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from gantree.formats.traces.columns import COLUMNS, OPTIONAL, REQUIRED
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.parquet import write_parquet
from gantree.model.errors import BadInput

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_OWN_DEFAULT = {each.name: each.default for each in fields(TraceJob)}
_DEFAULTS = tuple(_OWN_DEFAULT[name] if name in OPTIONAL else MISSING for name in COLUMNS)
_values_of = attrgetter(*COLUMNS)
_SQL_TYPES: Mapping[str, str] = {
    **dict.fromkeys(COLUMNS, "VARCHAR"),
    **dict.fromkeys(
        ("submit_s", "duration_s", "cpus_per_member", "checkpoint_s", "time_limit_s", "expected_s"),
        "DOUBLE",
    ),
    **dict.fromkeys(("gpu_share", "gpu_memory_GiB", "memory_GiB_per_member", "busy"), "DOUBLE"),
    **dict.fromkeys(("members", "gpus_per_member", "elastic_min", "elastic_max"), "INTEGER"),
    **dict.fromkeys(("slice_members", "spread_at_most", "nics_per_member"), "INTEGER"),
    "preemptible": "BOOLEAN",
}


def write_trace(jobs: Iterable[TraceJob], path: Path) -> int:
    """Write a trace and say how many jobs it has. The suffix names the format: one of SUFFIXES.

    Raises BadInput for another suffix and for a place that cannot be written, Unsupported without DuckDB for Parquet.
    """
    if not path.name.endswith(SUFFIXES):
        raise BadInput(f"{path}: a trace is written as {', '.join(SUFFIXES)}, by its name")
    try:
        with TemporaryDirectory(dir=path.parent, prefix=".trace-") as folder:
            every, chosen, done = (
                Path(folder, name) for name in ("every.csv", "chosen.csv", "done")
            )
            count, used = _write_every_column(jobs, every)
            _write_columns(every, used, chosen if path.suffix == ".parquet" else done, path)
            if path.suffix == ".parquet":
                write_parquet(chosen, {name: _SQL_TYPES[name] for name in used}, done)
            done.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error
    return count


def _write_every_column(jobs: Iterable[TraceJob], path: Path) -> tuple[int, list[str]]:
    """Write all columns; return how many jobs there are, and the columns that any of them uses."""
    used = set(REQUIRED)
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for job in jobs:
            count += 1
            row = _cells(job)
            used.update(compress(COLUMNS, row))
            writer.writerow(row)
    return count, [name for name in COLUMNS if name in used]


def _cells(job: TraceJob) -> list[str]:
    """All cells of a row; nothing where an optional column has its default."""
    return [
        "" if value == default else cell_text(value)
        for value, default in zip(_values_of(job), _DEFAULTS, strict=True)
    ]


def cell_text(value: Any) -> str:
    """A value of a job as a cell holds it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return repr(value).removesuffix(".0")
        case tuple():
            return " ".join(f"{axis}={ways}" for axis, ways in value)
        case _:
            return str(value)


def _write_columns(every: Path, used: list[str], out: Path, target: Path) -> None:
    """Write the used columns only, packed if the target's name says so."""
    with every.open(encoding="utf-8", newline="") as file, _text_at(out, target) as text:
        rows = csv.reader(file)
        header = next(rows)
        places = [header.index(name) for name in used]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(used)
        writer.writerows([row[place] for place in places] for row in rows)


@contextmanager
def _text_at(out: Path, target: Path) -> Iterator[TextIO]:
    """A file of text; packed without name and date, so that equal rows give equal bytes."""
    if target.suffix != ".gz":
        with out.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    with (
        out.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        TextIOWrapper(packed, encoding="utf-8", newline="") as file,
    ):
        yield file
