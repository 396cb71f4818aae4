"""A format of traces that is a table of one row a job: its columns, and how a row becomes a job.

Rows come as text with their line (of a Parquet file: their number). The common case pays for no checks but the
conversions themselves; only a row that fails is looked at column by column, to name what is wrong with it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gantree.formats.traces.cells import Cell
from gantree.formats.traces.job import TraceJob
from gantree.model.errors import BadFields, Problem
from gantree.text.words import did_you_mean, shortened

MAX_ROWS = 10_000_000
MAX_COLUMNS = 100
MAX_PROBLEMS = 100

Line = tuple[int, Sequence[str]]
"""A line and its cells."""
Row = tuple[int, TraceJob]
"""The line that a job is in, or its number, and the job."""


class LeftOut(Exception):
    """A row that is in order and yet no job to run; its text says why: "never started"."""


class Conflict(NamedTuple):
    """A cell that contradicts another one of its row."""

    column: str
    found: str
    allowed: str


def _no_conflict(_job: TraceJob) -> Conflict | None:
    return None


@dataclass(frozen=True, slots=True)
class TableFormat:
    """Columns that each row fills, further ones that are read, and how a row becomes a job.

    A header is of this format if it has the required columns and those of `mark`. Texts in `absent` are as no text.

    job gets the values of cells that are not empty (of required columns always), and raises LeftOut. conflict finds the
    first rule between columns that a job breaks. own_clock: submit_s counts from the start of the trace already;
    otherwise from `cells.MONDAY`, and readers move it to the last Monday before the first job.
    """

    name: str
    title: str
    required: Mapping[str, Cell]
    optional: Mapping[str, Cell]
    job: Callable[[dict[str, Any]], TraceJob]
    conflict: Callable[[TraceJob], Conflict | None] = _no_conflict
    mark: tuple[str, ...] = ()
    absent: frozenset[str] = frozenset({""})
    delimiter: str = ","
    own_clock: bool = True

    def knows(self, header: Iterable[str]) -> bool:
        """Whether a table with this header is of this format."""
        return {*self.required, *self.mark} <= set(header)


def header_problems(header: Sequence[str], wanted: TableFormat, source: str) -> list[Problem]:
    """What a header has against a format of which it should have all columns and no others."""
    known = [*wanted.required, *wanted.optional]
    problems = [
        Problem(source, 1, column, "no such column", "a column; it is required")
        for column in wanted.required
        if column not in header
    ]
    for place, column in enumerate(header):
        if column not in known:
            allowed = f"the columns {', '.join(known)}"
            named = shortened(column) or f"column {place + 1}"
            hint = did_you_mean(column, known)
            problems.append(Problem(source, 1, named, "an unknown column", allowed, hint))
        elif column in header[:place]:
            problems.append(Problem(source, 1, column, "the column again", "each column once"))
    return problems[:MAX_PROBLEMS]


class TableReader:
    """Makes jobs of the lines of one table. left_out counts, by reason, rows that are no jobs."""

    def __init__(self, header: Sequence[str], form: TableFormat, source: str) -> None:
        self.left_out: Counter[str] = Counter()
        self._form = form
        self._source = source
        self._width = len(header)
        self._problems: list[Problem] = []
        self._plan = [
            (header.index(column), column, cell.parse, column in form.required)
            for columns in (form.required, form.optional)
            for column, cell in columns.items()
            if column in header
        ]

    def jobs(self, lines: Iterable[Line]) -> Iterator[Row]:
        """Give jobs as they come. Raises BadFields at the end, or at the hundredth problem, for all that is wrong."""
        jobs = 0
        for line, cells in lines:
            job = self._job(line, cells)
            if job is not None:
                jobs += 1
                yield line, job
            if len(self._problems) >= MAX_PROBLEMS:
                break
            if jobs > MAX_ROWS:
                allowed = f"at most {MAX_ROWS} rows"
                self._problems.append(Problem(self._source, None, "document", "more rows", allowed))
                break
        if self._problems:
            raise BadFields(self._problems)

    def _job(self, line: int, cells: Sequence[str]) -> TraceJob | None:
        """The job of a row; None where it is left out, or where something is wrong, which is noted."""
        if len(cells) != self._width:
            allowed = f"{self._width} columns, as in the header"
            self._note(line, "row", f"{len(cells)} columns", allowed)
            return None
        absent = self._form.absent
        try:
            values = {
                column: parse(cells[place])
                for place, column, parse, required in self._plan
                if required or cells[place] not in absent
            }
        except (ValueError, OverflowError):
            self._note_cells(line, cells)
            return None
        try:
            job = self._form.job(values)
        except LeftOut as left:
            self.left_out[str(left)] += 1
            return None
        conflict = self._form.conflict(job)
        if conflict is None:
            return job
        self._note(line, *conflict)
        return None

    def _note(self, line: int, column: str, found: str, allowed: str) -> None:
        self._problems.append(Problem(self._source, line, column, found, allowed))

    def _note_cells(self, line: int, cells: Sequence[str]) -> None:
        known = {**self._form.required, **self._form.optional}
        for place, column, parse, required in self._plan:
            text = cells[place]
            if text in self._form.absent and not required:
                continue
            try:
                parse(text)
            except (ValueError, OverflowError):
                found = f"`{shortened(text)}`" if text else "nothing"
                self._note(line, column, found, known[column].allowed)
