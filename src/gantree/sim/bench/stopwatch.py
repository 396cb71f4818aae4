"""Times every call of `Scheduler.handle` in a simulation, without changing it."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from gantree.core.scheduler import Decision, Scheduler
from gantree.model.events import Event
from gantree.sim.results import nearest_rank


class Stopwatch:
    """Seconds of each call since it was put on a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.times_s: list[float] = []
        self._handle = scheduler.handle
        scheduler.handle = self._timed  # type: ignore[method-assign]  # the loop asks the scheduler, and shall not know

    def _timed(self, events: Sequence[Event]) -> Decision:
        start_s = perf_counter()
        decision = self._handle(events)
        self.times_s.append(perf_counter() - start_s)
        return decision

    def figures(self) -> dict[str, Any]:
        """Calls, seconds in all, and milliseconds of a call: mean, 99th percentile, most."""
        ordered = sorted(self.times_s)
        calls = len(ordered)
        return {
            "calls": calls,
            "seconds": round(sum(ordered), 3),
            "mean_ms": round(sum(ordered) / calls * 1e3, 4) if calls else None,
            "p99_ms": None if not calls else round((nearest_rank(ordered, 99) or 0.0) * 1e3, 4),
            "most_ms": round(ordered[-1] * 1e3, 3) if calls else None,
        }
