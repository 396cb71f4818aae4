"""Job traces: CSV and gzipped CSV to `TraceJob`s, and public traces, which have columns of their own.

A trace is read row by row, and all of it or nothing is handed out. The common case pays for no checks but the
conversions themselves; only a row that fails is looked at column by column, to name what is wrong with it.

Philly (columns job_id, arrival_s, duration_s, num_gpus, vc) says how many GPUs a job had, not on how many machines.
Its machines had at most 8 GPUs, so a job of up to 8 GPUs becomes one member; a larger one becomes members of the
largest number of GPUs up to 8 that divides it (16 -> 2 x 8, 12 -> 2 x 6, 11 -> 11 x 1). vc becomes the queue.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import TextIOBase
from pathlib import Path
from typing import TextIO

from gantree.model.errors import BadFields, NotFound, Problem, Unsupported
from gantree.text.words import NAME_PATTERN, did_you_mean, shortened

MAX_ROWS = 10_000_000
MAX_SECONDS = 1e12
"""Moments may be seconds, or even milliseconds, since 1970; a sum over MAX_ROWS of them must stay finite."""
MAX_LINE_CHARS = 64 * 1024
MAX_COLUMNS = 100
MAX_EMPTY_LINES = 100_000
MAX_PROBLEMS = 100
PARQUET_MAGIC = b"PAR1"
GPUS_OF_A_PHILLY_MACHINE = 8


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Times in seconds; submit_s from the start of the trace.

    checkpoint_s is the time between checkpoints and time_limit_s the job's limit, None where the trace does not
    say; gpu is the model asked for, None for any. expected_s is what its user expected of the run time, None where
    nobody did. preemptible is False for a job that is never stopped for another. elastic_min and elastic_max are
    members between which it may run, None for a fixed size. required and preferred are tiers, and each slice_members
    consecutive members are in one domain of the tier slice_required; None where the trace asks for no such thing.
    """

    job_id: str
    submit_s: float
    duration_s: float
    members: int
    gpus_per_member: int
    gpu: str | None = None
    queue: str = "default"
    user: str = ""
    priority: str | int = "batch"
    cpus_per_member: float = 0.0
    checkpoint_s: float | None = None
    time_limit_s: float | None = None
    expected_s: float | None = None
    preemptible: bool = True
    elastic_min: int | None = None
    elastic_max: int | None = None
    required: str | None = None
    preferred: str | None = None
    slice_members: int | None = None
    slice_required: str | None = None


REQUIRED = ("job_id", "submit_s", "duration_s", "members", "gpus_per_member")
OPTIONAL = (
    "gpu", "queue", "user", "priority", "cpus_per_member", "checkpoint_s", "time_limit_s",
    "expected_s", "preemptible", "elastic_min", "elastic_max", "required", "preferred", "slice_members",
    "slice_required",
)  # fmt: skip
PHILLY = ("job_id", "arrival_s", "duration_s", "num_gpus", "vc")

Row = Mapping[str, str]
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_QUEUE = re.compile(f"{NAME_PATTERN}(/{NAME_PATTERN}){{0,15}}", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_SIGNED = re.compile(r"[-+]?[0-9]{1,9}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]{1,3})?|[0-9]+\.", re.ASCII)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= MAX_SECONDS or not _DECIMAL.fullmatch(text.strip()):
        raise ValueError
    return value


def _above_zero(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise ValueError
    return value


def _count(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError
    return int(text)


def _count_from_one(text: str) -> int:
    value = _count(text)
    if value == 0:
        raise ValueError
    return value


def _job_id(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError
    return text


def _queue(text: str) -> str:
    if not _QUEUE.fullmatch(text):
        raise ValueError
    return text


def _priority(text: str) -> str | int:
    return int(text) if _SIGNED.fullmatch(text) else _job_id(text)


def _yes(text: str) -> bool:
    if text not in _YES_NO:
        raise ValueError
    return _YES_NO[text]


def _text(text: str) -> str:
    if not text.isprintable():
        raise ValueError
    return text


_YES_NO = {"yes": True, "true": True, "no": False, "false": False}


_WHAT_IS_ALLOWED: Mapping[str, tuple[Callable[[str], object], str]] = {
    "job_id": (_job_id, "a name of letters, digits, `.`, `_` and `-`, at most 63"),
    "submit_s": (_seconds, "seconds, 0 or more and at most 1e12"),
    "arrival_s": (_seconds, "seconds, 0 or more and at most 1e12"),
    "duration_s": (_seconds, "seconds, 0 or more and at most 1e12"),
    "members": (_count_from_one, "a whole number of 1 or more"),
    "gpus_per_member": (_count, "a whole number of 0 or more"),
    "num_gpus": (_count_from_one, "a whole number of 1 or more"),
    "gpu": (_text, "text"),
    "queue": (_queue, "names joined by `/`"),
    "vc": (_queue, "names joined by `/`"),
    "user": (_text, "text"),
    "priority": (_priority, "a priority class or a whole number"),
    "cpus_per_member": (_seconds, "a number of 0 or more"),
    "checkpoint_s": (_above_zero, "seconds, more than 0 and at most 1e12"),
    "time_limit_s": (_above_zero, "seconds, more than 0 and at most 1e12"),
    "expected_s": (_above_zero, "seconds, more than 0 and at most 1e12"),
    "preemptible": (_yes, "yes or no"),
    "elastic_min": (_count_from_one, "a whole number of 1 or more"),
    "elastic_max": (_count_from_one, "a whole number of 1 or more"),
    "required": (_job_id, "a tier of the cluster"),
    "preferred": (_job_id, "a tier of the cluster"),
    "slice_members": (_count_from_one, "a whole number of 1 or more"),
    "slice_required": (_job_id, "a tier of the cluster"),
}


def read_trace(path: Path) -> list[TraceJob]:
    """Read a .csv or .csv.gz trace, its jobs in the order of the file.

    Raises NotFound, BadFields with file, line and column, and Unsupported for Parquet.
    """
    _refuse_parquet(path)
    with _opened(path) as file:
        return read_trace_text(file, str(path))


def read_trace_text(lines: Iterable[str], source: str) -> list[TraceJob]:
    """Read a trace from the lines of a CSV file, the header first. Raises BadFields."""
    reader = csv.reader(_of_bounded_length(lines, source), strict=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        if len(header) > MAX_COLUMNS:
            allowed = f"at most {MAX_COLUMNS} columns"
            raise BadFields([Problem(source, 1, "row", f"{len(header)} columns", allowed)])
        make = _importer(header, source)
        return _jobs(reader, header, make, source)
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


def _refuse_parquet(path: Path) -> None:
    """Raise Unsupported for a Parquet file, whatever it is called, and NotFound for one that cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(len(PARQUET_MAGIC))
    except OSError as error:
        raise NotFound(f"{path}: cannot be read: {error.strerror}.") from error
    if start == PARQUET_MAGIC or path.suffix == ".parquet":
        raise Unsupported(f"{path}: Parquet traces are not supported by this version; write CSV.")


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open a trace as text, and tell what is wrong with the file as a whole."""
    try:
        if path.suffix == ".gz":
            file: TextIO = gzip.open(path, "rt", encoding="utf-8-sig", newline="")  # noqa: SIM115 - closed below
        else:
            file = path.open(encoding="utf-8-sig", newline="")
        with file:
            yield file
    except UnicodeDecodeError as error:
        raise _bad_file(path, f"the byte 0x{error.object[error.start]:02x}", "UTF-8 text") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _bad_file(path, str(error), "a whole gzip file") from None
    except OSError as error:
        raise NotFound(f"{path}: cannot be read: {error.strerror}.") from error


def _bad_file(path: Path, found: str, allowed: str) -> BadFields:
    return BadFields([Problem(str(path), None, "document", found, allowed)])


def _importer(header: list[str], source: str) -> Callable[[Row], TraceJob]:
    """Return what makes a job of a row with these columns."""
    if set(PHILLY) <= set(header):
        return _philly_job
    known = [*REQUIRED, *OPTIONAL]
    problems = [
        Problem(source, 1, column, "no such column", "a column; it is required")
        for column in REQUIRED
        if column not in header
    ]
    for place, column in enumerate(header):
        if column not in known:
            allowed = f"the columns {', '.join(known)}"
            hint = did_you_mean(column, known)
            field = shortened(column) or f"column {place + 1}"
            problems.append(Problem(source, 1, field, "an unknown column", allowed, hint))
        elif column in header[:place]:
            problems.append(Problem(source, 1, column, "the column again", "each column once"))
    if problems:
        raise BadFields(problems[:MAX_PROBLEMS])
    return _plain_job


def _jobs(
    reader: Iterator[list[str]], header: list[str], make: Callable[[Row], TraceJob], source: str
) -> list[TraceJob]:
    jobs: list[TraceJob] = []
    problems: list[Problem] = []
    line_of_job: dict[str, int] = {}
    for row in reader:
        if not row:
            continue
        line: int = reader.line_num  # type: ignore[attr-defined]  # csv has no public type for its reader
        job = _job(row, header, make, source, line, problems)
        if job is not None:
            first = line_of_job.setdefault(job.job_id, line)
            if first != line:
                found = f"`{job.job_id}` again (first in line {first})"
                problems.append(Problem(source, line, "job_id", found, "each job once"))
            jobs.append(job)
        if len(problems) >= MAX_PROBLEMS or len(jobs) > MAX_ROWS:
            break
    if len(jobs) > MAX_ROWS:
        problems.append(Problem(source, None, "document", "more rows", f"at most {MAX_ROWS} rows"))
    if problems:
        raise BadFields(problems)
    return jobs


def _job(
    row: list[str],
    header: list[str],
    make: Callable[[Row], TraceJob],
    source: str,
    line: int,
    problems: list[Problem],
) -> TraceJob | None:
    """Return the job of a row, or None and what is wrong with it in problems."""
    if len(row) != len(header):
        found, allowed = f"{len(row)} columns", f"{len(header)} columns, as in the header"
        problems.append(Problem(source, line, "row", found, allowed))
        return None
    named = dict(zip(header, row, strict=True))
    try:
        job = make(named)
    except (ValueError, OverflowError):
        problems += _row_problems(named, source, line)
        return None
    wrong = _elastic_problem(job) or _slice_problem(job)
    if wrong is not None:
        problems.append(Problem(source, line, *wrong))
        return None
    return job


def _row_problems(row: Row, source: str, line: int) -> Iterator[Problem]:
    for column, text in row.items():
        if column not in _WHAT_IS_ALLOWED or (not text and column in OPTIONAL):
            continue
        check, allowed = _WHAT_IS_ALLOWED[column]
        try:
            check(text)
        except (ValueError, OverflowError):
            found = f"`{shortened(text)}`" if text else "nothing"
            yield Problem(source, line, column, found, allowed)


def _plain_job(row: Row) -> TraceJob:
    """Make a job of a row in our own columns. An empty cell of an optional column is as if it were not there."""
    get = row.get
    return TraceJob(
        job_id=_job_id(row["job_id"]),
        submit_s=_seconds(row["submit_s"]),
        duration_s=_seconds(row["duration_s"]),
        members=_count_from_one(row["members"]),
        gpus_per_member=_count(row["gpus_per_member"]),
        gpu=_text(get("gpu", "")) or None,
        queue=_queue(get("queue") or "default"),
        user=_text(get("user", "")),
        priority=_priority(get("priority") or "batch"),
        cpus_per_member=_seconds(get("cpus_per_member") or "0"),
        checkpoint_s=_above_zero(row["checkpoint_s"]) if get("checkpoint_s") else None,
        time_limit_s=_above_zero(row["time_limit_s"]) if get("time_limit_s") else None,
        expected_s=_above_zero(row["expected_s"]) if get("expected_s") else None,
        preemptible=_yes(get("preemptible") or "yes"),
        elastic_min=_count_from_one(row["elastic_min"]) if get("elastic_min") else None,
        elastic_max=_count_from_one(row["elastic_max"]) if get("elastic_max") else None,
        required=_job_id(row["required"]) if get("required") else None,
        preferred=_job_id(row["preferred"]) if get("preferred") else None,
        slice_members=_count_from_one(row["slice_members"]) if get("slice_members") else None,
        slice_required=_job_id(row["slice_required"]) if get("slice_required") else None,
    )


def _elastic_problem(job: TraceJob) -> tuple[str, str, str] | None:
    """Return (column, found, allowed) where the members of a job do not lie between two bounds, None where they do."""
    least, most = job.elastic_min, job.elastic_max
    if least is None and most is None:
        return None
    if least is None or most is None:
        return ("elastic_min" if least is None else "elastic_max"), "nothing", "both bounds or none"
    if not least <= job.members:
        return "elastic_min", f"`{least}`", f"at most members, which are {job.members}"
    if not job.members <= most:
        return "elastic_max", f"`{most}`", f"at least members, which are {job.members}"
    return None


def _slice_problem(job: TraceJob) -> tuple[str, str, str] | None:
    """Return (column, found, allowed) where only one of the columns of slices is filled, None where none is missing."""
    if (job.slice_members is None) == (job.slice_required is None):
        return None
    missing = "slice_members" if job.slice_members is None else "slice_required"
    return missing, "nothing", "both slice_members and slice_required, or none"


def _philly_job(row: Row) -> TraceJob:
    members, gpus_per_member = philly_members(_count_from_one(row["num_gpus"]))
    return TraceJob(
        job_id=_job_id(row["job_id"]),
        submit_s=_seconds(row["arrival_s"]),
        duration_s=_seconds(row["duration_s"]),
        members=members,
        gpus_per_member=gpus_per_member,
        queue=_queue(row["vc"]),
    )


def philly_members(gpus: int) -> tuple[int, int]:
    """Return (members, GPUs a member) of a Philly job: one member up to 8 GPUs, else the fewest equal ones."""
    if gpus <= GPUS_OF_A_PHILLY_MACHINE:
        return 1, gpus
    each = next(each for each in range(GPUS_OF_A_PHILLY_MACHINE, 0, -1) if gpus % each == 0)
    return gpus // each, each
