"""What counters tell of simulated gangs whose rows say how busy they are: a report every five minutes, as the daemon's.

A gang is busy for the same part of every second that it runs. Gangs whose rows say nothing are not measured.
"""

from dataclasses import dataclass
from math import floor

from gantree.model.events import Event, GpuUseObserved
from gantree.model.gpu_activity import MeasuredUse
from gantree.sim.heap import EventHeap

REPORT_S = 300.0
"""Seconds from one report to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UseReportDue(Event):
    """The gangs that are measured are reported."""


@dataclass(slots=True)
class _Measured:
    """An attempt that runs, and when it was last reported."""

    attempt: int
    gpus: float
    busy: float
    since: float


class UseReports:
    """The reports of one run; the next one is on the heap while any gang is measured."""

    def __init__(self, heap: EventHeap) -> None:
        self._heap = heap
        self._running: dict[str, _Measured] = {}
        self._is_due = False
        self._reports = 0

    def begin(self, job: str, attempt: int, gpus: float, busy: float, now: float) -> None:
        """Measure an attempt that runs from now on. busy: the part of the time in which its GPUs compute."""
        self._running[job] = _Measured(attempt, gpus, busy, now)
        self._foretell(now)

    def end(self, job: str, now: float) -> tuple[GpuUseObserved, ...]:
        """Return the last report of a gang that has ended; nothing of one that was not measured."""
        measured = self._running.pop(job, None)
        return () if measured is None else self._report({job: measured}, now)

    def due(self, now: float) -> tuple[GpuUseObserved, ...]:
        """Return the report of all gangs, and foretell the next one."""
        self._is_due = False
        found = self._report(self._running, now)
        self._foretell(now)
        return found

    def _foretell(self, now: float) -> None:
        if self._running and not self._is_due:
            self._is_due = True
            at = (floor(now / REPORT_S) + 1) * REPORT_S
            self._heap.push(UseReportDue(id=f"use-due-{self._reports}", observed_at=at))

    def _report(self, gangs: dict[str, _Measured], now: float) -> tuple[GpuUseObserved, ...]:
        """Return what was not reported yet of some gangs."""
        since = min((each.since for each in gangs.values()), default=now)
        used = []
        for job, each in gangs.items():
            gpu_s, each.since = (now - each.since) * each.gpus, now
            if gpu_s > 0:
                useful = gpu_s * each.busy
                used.append(MeasuredUse(job, each.attempt, useful, gpu_s - useful))
        if not used:
            return ()
        self._reports += 1
        name = f"use-{self._reports}"
        return (
            GpuUseObserved(id=name, observed_at=now, since=since, until=now, gangs=tuple(used)),
        )
