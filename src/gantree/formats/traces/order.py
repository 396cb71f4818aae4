"""Jobs of a long trace: sorted by submission without holding them all, and ids that come twice.

Sorting is an external merge sort: runs that fit into memory are sorted and written as CSV, then merged. It is stable:
jobs of one moment stay in the order of the trace.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gantree.formats.traces.columns import OWN
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.table import Row, TableReader
from gantree.formats.traces.text_file import opened, table_of
from gantree.formats.traces.writer import write_trace
from gantree.model.errors import Problem

RUN_JOBS = 100_000
"""Jobs that are sorted in memory at once; at most a hundred runs are merged then (`table.MAX_ROWS`)."""
_by_submission = attrgetter("submit_s")


def sorted_by_submission(
    jobs: Iterable[TraceJob], run_jobs: int | None = None
) -> Iterator[TraceJob]:
    """Give jobs in the order of submit_s."""
    with TemporaryDirectory(prefix="gantree-") as folder:
        runs: list[Path] = []
        coming = iter(jobs)
        while run := list(islice(coming, run_jobs or RUN_JOBS)):
            path = Path(folder, f"{len(runs)}.csv")
            write_trace(sorted(run, key=_by_submission), path)
            runs.append(path)
        yield from heapq.merge(*map(_read, runs), key=_by_submission)


def _read(path: Path) -> Iterator[TraceJob]:
    with opened(path) as file:
        header, lines = table_of(file, str(path))
        for _, job in TableReader(header, OWN, str(path)).jobs(lines):
            yield job


class Ids:
    """Ids of the jobs of a trace, 8 bytes each."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def add(self, job_id: str) -> None:
        """Note the id of one more job."""
        self._hashes.append(hash(job_id))

    def suspects(self) -> frozenset[int]:
        """Hashes that come more than once: of ids that come twice, or of different ones by accident."""
        values, counts = np.unique(np.array(self._hashes, dtype=np.int64), return_counts=True)
        return frozenset(values[counts > 1].tolist())


def repeated(rows: Iterable[Row], suspects: frozenset[int], source: str) -> Iterator[Problem]:
    """A problem for each job whose id came before, looked for among ids with these hashes."""
    line_of_job: dict[str, int] = {}
    for line, job in rows:
        if hash(job.job_id) not in suspects:
            continue
        first = line_of_job.setdefault(job.job_id, line)
        if first != line:
            found = f"`{job.job_id}` again (first in line {first})"
            yield Problem(source, line, "job_id", found, "each job once")
