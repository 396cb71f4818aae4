"""What a summary reads of the rows of a run, taken in one pass: those of a bounded run are read from disk."""

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantree.sim.results import JobRow

LONG_JOB_S = 86_400.0
"""Jobs whose effective training time ratio is told take this long or longer."""


class RowFigures:
    """The figures of rows, in seconds and GPU-seconds; of times only those that are known.

    ettrs are the effective training time ratios of finished jobs that took LONG_JOB_S or more from their first start:
    of that time, the part in which the gang worked on what was kept (Kokolis et al. 2024, section 3, without the first
    wait). domains[tier] is the number of domains of each placed job of two or more members.
    """

    def __init__(self, rows: Iterable["JobRow"], tiers: int) -> None:
        self.jobs = self.finished = self.preemptions = self.failures = 0
        self.jcts_s, self.waits_s, self.stretches, self.ettrs = (array("d") for _ in range(4))
        self.lost_gpu_s, self.useful_gpu_s, self.lost_to_failures_gpu_s = (
            array("d") for _ in range(3)
        )
        self.domains = [array("d") for _ in range(tiers)]
        self._begin_s, self._end_s = float("inf"), float("-inf")
        for row in rows:
            self._add(row)

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end; 0 where no job has ended."""
        return self._end_s - self._begin_s if self._end_s > float("-inf") else 0.0

    def _add(self, row: "JobRow") -> None:
        self.jobs += 1
        self.preemptions += row.preemptions
        self.failures += row.failures
        self._begin_s = min(self._begin_s, row.submit_s)
        if row.end_s is not None:
            self._end_s = max(self._end_s, row.end_s)
        if row.wait_s is not None:
            self.waits_s.append(row.wait_s)
        if row.stretch is not None:
            self.stretches.append(row.stretch)
        self.lost_gpu_s.append(row.gpu_s_lost)
        self.useful_gpu_s.append(row.useful_gpu_s)
        self.lost_to_failures_gpu_s.append(row.gpu_s_lost_to_failures)
        if row.members > 1 and row.placement is not None:
            for tier, domains in zip(self.domains, row.domains, strict=True):
                tier.append(domains)
        if row.finished:
            self._add_finished(row)

    def _add_finished(self, row: "JobRow") -> None:
        self.finished += 1
        if row.jct_s is not None:
            self.jcts_s.append(row.jct_s)
        if row.end_s is not None and row.first_start_s is not None:
            took_s = row.end_s - row.first_start_s
            if took_s >= LONG_JOB_S:
                self.ettrs.append(row.kept_for_s / took_s)
