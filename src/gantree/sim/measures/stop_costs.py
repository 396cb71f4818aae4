"""Cost of stops: GPU-hours that attempts held and that brought nothing that was kept, by the cause of the stop."""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.sim.record import Span

ENDED = "ended by itself"
"""Attempts after which the job was started again although nobody stopped them."""


@dataclass(frozen=True, slots=True)
class StopCost:
    """Stops of one cause; lost_gpu_hours are those of attempts that were followed by another."""

    cause: str
    stops: int
    lost_gpu_hours: float


def stop_costs(spans: Iterable[Span]) -> list[StopCost]:
    """The cost of each cause, the most expensive first."""
    stops: dict[str, int] = {}
    lost_gpu_s: dict[str, float] = {}
    for span in spans:
        if not span.cause and not span.lost_gpu_s:
            continue
        cause = span.cause or ENDED
        stops[cause] = stops.get(cause, 0) + 1
        lost_gpu_s[cause] = lost_gpu_s.get(cause, 0.0) + span.lost_gpu_s
    rows = [StopCost(cause, stops[cause], round(lost_gpu_s[cause] / 3600, 6)) for cause in stops]
    return sorted(rows, key=lambda row: (-row.lost_gpu_hours, row.cause))
