"""Jobs by the number of their GPUs: classes in powers of two, and statistics of each class."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from gantree.sim.results import JobRow, mean, statistics

BOUNDS = (0, 1, 4, 8, 16, 64, 256)
"""The largest number of GPUs of each class but the last."""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Statistics of one class: as in the summary, over its jobs. domains are means by tier over gangs that ran."""

    name: str
    jobs: int
    gpu_hours: float
    wait_s: dict[str, float | None]
    jct_s: dict[str, float | None]
    domains: tuple[float | None, ...]


def class_names() -> list[str]:
    """Names of all classes, the smallest first."""
    return [_name(number) for number in range(len(BOUNDS) + 1)]


def class_of(gpus: float) -> str:
    """The name of the class of a job with so many GPUs; parts of GPUs are parts."""
    return _name(next((n for n, most in enumerate(BOUNDS) if gpus <= most), len(BOUNDS)))


def _name(number: int) -> str:
    if number == len(BOUNDS):
        return f"over {BOUNDS[-1]} GPUs"
    least, most = BOUNDS[number - 1] + 1, BOUNDS[number]
    if most <= 1:
        return "up to 1 GPU" if most else "no GPUs"
    return f"{least}-{most} GPUs"


def by_class(jobs: Sequence[JobRow], tiers: int) -> list[ClassRow]:
    """One row for each class that has jobs, the smallest first."""
    jobs_of: dict[str, list[JobRow]] = {name: [] for name in class_names()}
    for job in jobs:
        jobs_of[class_of(job.gpus)].append(job)
    return [_row(name, members, tiers) for name, members in jobs_of.items() if members]


def _row(name: str, jobs: Sequence[JobRow], tiers: int) -> ClassRow:
    placed = [job.domains for job in jobs if job.members > 1 and job.placement is not None]
    return ClassRow(
        name=name,
        jobs=len(jobs),
        gpu_hours=round(fsum(job.gpu_s_held for job in jobs) / 3600, 3),
        wait_s=statistics([job.wait_s for job in jobs if job.wait_s is not None]),
        jct_s=statistics([job.jct_s for job in jobs if job.finished and job.jct_s is not None]),
        domains=tuple(mean([float(each[tier]) for each in placed]) for tier in range(tiers)),
    )
