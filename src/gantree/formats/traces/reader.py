"""Reads traces of all formats: whole, as a list in the order of the file, or in parts, in the order of submission.

`open_trace` reads a file twice: once to check all of it (a trace is read whole or not at all), then as often as its
jobs are asked for. What it keeps of a job meanwhile is 8 bytes, so a million jobs need no memory for a million rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from gantree.formats.traces.columns import OWN
from gantree.formats.traces.importers import DOCUMENTS, TABLES
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.order import Ids, repeated, sorted_by_submission
from gantree.formats.traces.parquet import header_of, is_parquet, lines_of
from gantree.formats.traces.table import (
    MAX_PROBLEMS,
    Line,
    Row,
    TableFormat,
    TableReader,
    header_problems,
)
from gantree.formats.traces.text_file import opened, table_of
from gantree.model.errors import BadFields, Problem

WEEK_S = 7 * 86_400
DELIMITERS = ",|"
"""A comma, or as `sacct --parsable2` has it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or a directory, of a known format. rows reads it once; rows that are no jobs are counted by reason."""

    name: str
    format: str
    own_clock: bool
    rows: Callable[[Counter[str]], Iterator[Row]]

    def shift_s(self, first_s: float) -> float:
        """What is taken off each submission if the first is at first_s: up to the Monday before it."""
        return 0.0 if self.own_clock else first_s // WEEK_S * WEEK_S


@dataclass(frozen=True, slots=True)
class Trace:
    """A checked trace. Iterating gives its jobs in the order of submission, as often as it is done.

    first_s and last_s are the first and the last submission; left_out counts rows that are no jobs to run, by reason.
    """

    format: str
    jobs: int
    first_s: float
    last_s: float
    left_out: Counter[str]
    _source: Source
    _in_order: bool

    def __len__(self) -> int:
        return self.jobs

    def __iter__(self) -> Iterator[TraceJob]:
        jobs = (job for _, job in self._source.rows(Counter()))
        shift_s = self._source.shift_s(self.first_s)
        if shift_s:
            jobs = (replace(job, submit_s=job.submit_s - shift_s) for job in jobs)
        return jobs if self._in_order else sorted_by_submission(jobs)


def open_trace(path: Path, form: str | None = None) -> Trace:
    """Check a trace and return it as what its jobs can be read from, in the order of submission, part by part.

    form is the name of its format; None: as its columns say. Raises NotFound, BadFields with file, line and column, and
    Unsupported for Parquet and for directories where DuckDB is not installed.
    """
    source = source_of(path, form)
    left_out: Counter[str] = Counter()
    ids = Ids()
    jobs, first_s, last_s, in_order = 0, 0.0, 0.0, True
    for _, job in source.rows(left_out):
        in_order &= not jobs or job.submit_s >= last_s
        first_s = min(first_s, job.submit_s) if jobs else job.submit_s
        last_s = max(last_s, job.submit_s)
        ids.add(job.job_id)
        jobs += 1
    suspects = ids.suspects()
    if suspects:
        again = repeated(source.rows(Counter()), suspects, source.name)
        _refuse(list(islice(again, MAX_PROBLEMS)))
    return Trace(source.format, jobs, first_s, last_s, left_out, source, in_order)


def read_trace(path: Path, form: str | None = None) -> list[TraceJob]:
    """Read a trace, its jobs in the order of the file. form and errors are those of `open_trace`."""
    source = source_of(path, form)
    return _all(source.rows(Counter()), source)


def read_trace_text(lines: Iterable[str], source: str) -> list[TraceJob]:
    """Read a trace from the lines of a CSV file, the header first. Raises BadFields."""
    header, rows = table_of(lines, source, DELIMITERS)
    chosen = table_format(header, source)
    read = TableReader(header, chosen, source).jobs(rows)
    return _all(read, Source(source, chosen.name, chosen.own_clock, lambda _: read))


def _all(rows: Iterator[Row], source: Source) -> list[TraceJob]:
    jobs: list[TraceJob] = []
    problems: list[Problem] = []
    line_of_job: dict[str, int] = {}
    for line, job in rows:
        first = line_of_job.setdefault(job.job_id, line)
        if first != line and len(problems) < MAX_PROBLEMS:
            found = f"`{job.job_id}` again (first in line {first})"
            problems.append(Problem(source.name, line, "job_id", found, "each job once"))
        jobs.append(job)
    _refuse(problems)
    shift_s = source.shift_s(min((job.submit_s for job in jobs), default=0.0))
    return [replace(job, submit_s=job.submit_s - shift_s) for job in jobs] if shift_s else jobs


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise BadFields(problems)


def source_of(path: Path, form: str | None = None) -> Source:
    """What a file or a directory is. Raises NotFound, and BadFields for columns of no format."""
    name = str(path)
    for document in DOCUMENTS:
        if form == document.name or (form is None and document.knows(path)):
            return Source(name, document.name, document.own_clock, document.rows_of(path))
    if is_parquet(path):
        chosen = table_format(header_of(path), name, form)
        return Source(name, chosen.name, chosen.own_clock, _parquet_rows(path, chosen))
    with opened(path) as file:
        header, _ = table_of(file, name, DELIMITERS)
        chosen = table_format(header, name, form)
    return Source(name, chosen.name, chosen.own_clock, _text_rows(path, chosen))


def table_format(header: list[str], source: str, form: str | None = None) -> TableFormat:
    """The format of a table with this header. Raises BadFields where it is none, or not that of `form`."""
    named = [each for each in (*TABLES, OWN) if form in (None, each.name)]
    chosen = next((each for each in named if each.knows(header)), named[-1])
    if chosen is OWN or not chosen.knows(header):
        _refuse(header_problems(header, chosen, source))
    return chosen


def _text_rows(path: Path, form: TableFormat) -> Callable[[Counter[str]], Iterator[Row]]:
    def rows(left_out: Counter[str]) -> Iterator[Row]:
        with opened(path) as file:
            header, lines = table_of(file, str(path), form.delimiter)
            yield from _counted(header, lines, form, str(path), left_out)

    return rows


def _parquet_rows(path: Path, form: TableFormat) -> Callable[[Counter[str]], Iterator[Row]]:
    def rows(left_out: Counter[str]) -> Iterator[Row]:
        yield from _counted(header_of(path), lines_of(path), form, str(path), left_out)

    return rows


def _counted(
    header: list[str],
    lines: Iterable[Line],
    form: TableFormat,
    source: str,
    left_out: Counter[str],
) -> Iterator[Row]:
    reader = TableReader(header, form, source)
    yield from reader.jobs(lines)
    left_out.update(reader.left_out)
