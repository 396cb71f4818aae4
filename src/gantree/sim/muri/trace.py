"""Muri's traces: the request and the work of each job.

A row says how many iterations a job does and how long one takes; that is its work. (duration_s, what the job took on
Philly, is what the iterations were made from.) The published runs count 1.5 % more for each iteration. Start overheads
are by GPU count and model.
"""

import csv
import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gantree.model.errors import BadInput, NotFound

ITERATION_FACTOR = 1.015
"""What the published runs stretch every iteration by (itertime_overhead_list in their jobs.py)."""

UNMEASURED_OVERHEAD_S = 10.0
"""Start overhead of a model that was not measured."""

OVERHEADS = "start_overhead_s.csv"

Overheads = Mapping[tuple[int, str], float]
"""(GPUs, model) -> seconds."""


@dataclass(frozen=True, slots=True)
class MuriJob:
    """One job: so many iterations of iteration_s seconds each, on so many GPUs."""

    job_id: str
    arrival_s: float
    gpus: int
    model: str
    iterations: float
    iteration_s: float
    overhead_s: float

    @property
    def work_s(self) -> float:
        """Seconds it runs undisturbed."""
        return self.iterations * self.iteration_s


def read_overheads(directory: Path) -> dict[tuple[int, str], float]:
    """Read the measured start overheads. Raises NotFound, and BadInput for a file that is something else."""
    path = directory / OVERHEADS
    return {
        (int(row["gpus"]), row["model"]): float(row["start_overhead_s"])
        for row in _rows(path, ("gpus", "model", "start_overhead_s"))
    }


def read_muri(directory: Path, name: str) -> list[MuriJob]:
    """Read a trace ("trace3") in the order of arrival. Raises NotFound and BadInput."""
    overheads = read_overheads(directory)
    columns = ("job_id", "arrival_s", "num_gpus", "model", "iterations", "iter_ms")
    jobs = [_job(row, overheads) for row in _rows(directory / f"{name}.csv.gz", columns)]
    return sorted(jobs, key=lambda job: job.arrival_s)


def _job(row: Mapping[str, str], overheads: Overheads) -> MuriJob:
    try:
        return _read_job(row, overheads)
    except ValueError as error:
        raise BadInput(f"job {row['job_id']} of the trace: {error}") from error


def _read_job(row: Mapping[str, str], overheads: Overheads) -> MuriJob:
    gpus, model = int(row["num_gpus"]), row["model"]
    return MuriJob(
        job_id=row["job_id"],
        arrival_s=float(row["arrival_s"]),
        gpus=gpus,
        model=model,
        iterations=float(row["iterations"]),
        iteration_s=float(row["iter_ms"]) * ITERATION_FACTOR / 1000,
        overhead_s=overheads.get((gpus, model), UNMEASURED_OVERHEAD_S),
    )


def _rows(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path}: cannot be read: {error.strerror or error}.") from error
    rows = list(csv.DictReader(text.decode().splitlines()))
    missing = [column for column in columns if not rows or column not in rows[0]]
    if missing:
        raise BadInput(f"{path}: no column {', '.join(missing)}; it is no file of Muri's traces")
    return rows
