"""Timing of calls in microseconds, and median and 99th percentile of many by nearest rank."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, TypeVar

from gantree.sim.results import nearest_rank

T = TypeVar("T")


def timed_us(act: Callable[[], T]) -> tuple[float, T]:
    """Return (microseconds of the call, its result)."""
    start_ns = perf_counter_ns()
    outcome = act()
    return (perf_counter_ns() - start_ns) / 1000, outcome


def figures(times_us: list[float], prefix: str = "") -> dict[str, Any]:
    """{"median_us", "p99_us"} with a prefix; None where nothing was measured."""
    ordered = sorted(times_us)
    return {
        f"{prefix}median_us": nearest_rank(ordered, 50),
        f"{prefix}p99_us": nearest_rank(ordered, 99),
    }
