"""Jobs by the number of their GPUs: classes in powers of two, and statistics of each class."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from gantree.sim.results import DIGITS, JobRow, statistics

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


def by_class(jobs: Iterable[JobRow], tiers: int) -> list[ClassRow]:
    """One row for each class that has jobs, the smallest first."""
    return [tally.row() for tally in tallies_of(jobs, tiers) if tally.jobs]


def tallies_of(jobs: Iterable[JobRow], tiers: int) -> list["Tally"]:
    """What each class has, the smallest first."""
    tally_of = {name: Tally(name, tiers) for name in class_names()}
    for job in jobs:
        tally_of[class_of(job.gpus)].add(job)
    return list(tally_of.values())


class Tally:
    """Numbers of the jobs of one class; times are kept as numbers, for long traces."""

    def __init__(self, name: str, tiers: int) -> None:
        self.name, self.jobs = name, 0
        self.waits_s, self.jcts_s = array("d"), array("d")
        self._gpu_s, self._gangs, self._domains = 0.0, 0, [0] * tiers

    def add(self, job: JobRow) -> None:
        """Count a job."""
        self.jobs += 1
        self._gpu_s += job.gpu_s_held
        if job.wait_s is not None:
            self.waits_s.append(job.wait_s)
        if job.finished and job.jct_s is not None:
            self.jcts_s.append(job.jct_s)
        if job.members > 1 and job.placement is not None:
            self._gangs += 1
            for tier, domains in enumerate(job.domains):
                self._domains[tier] += domains

    def row(self) -> ClassRow:
        """Its statistics."""
        spanned = (
            round(total / self._gangs, DIGITS) if self._gangs else None for total in self._domains
        )
        return ClassRow(
            self.name,
            self.jobs,
            round(self._gpu_s / 3600, 3),
            statistics(self.waits_s),
            statistics(self.jcts_s),
            tuple(spanned),
        )
