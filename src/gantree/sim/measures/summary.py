"""The measures that stand in summary.json, beside the summary of `sim.results`."""

from collections.abc import Sequence
from math import fsum
from typing import Any

from gantree.sim.measures.attempts import spans_of
from gantree.sim.measures.energy import energy_of
from gantree.sim.measures.gpu_hours import gpu_hours
from gantree.sim.measures.money import costs_of
from gantree.sim.measures.stop_costs import stop_costs
from gantree.sim.measures.timeline import Timeline, average, span_of, timeline_of
from gantree.sim.results import DIGITS, Result


def measures_of(result: Result, timeline: Timeline | None = None) -> dict[str, Any]:
    """The measures, rounded to DIGITS places; None for what nothing is known of."""
    timeline = timeline or timeline_of(result)
    hours = gpu_hours(result.fabric, spans_of(result), *span_of(result))
    energy, costs = energy_of(hours), costs_of(hours)
    return {
        "goodput": goodput(result),
        "jain_index": average(timeline.jain),
        "free_gpus_in_whole_domains": free_in_whole(timeline),
        "gpu_hours_lost_by_cause": {
            cost.cause: cost.lost_gpu_hours for cost in stop_costs(spans_of(result))
        },
        "energy_kWh": _total([row.kWh for row in energy]),
        "energy_kWh_idle": _total([row.idle_kWh for row in energy]),
        "cost_USD": _total([row.USD for row in costs]),
        "cost_USD_idle": _total([row.idle_USD for row in costs]),
    }


def goodput(result: Result) -> float:
    """GPU-seconds of work that was kept, over GPUs x makespan."""
    capacity_gpu_s = result.gpus * result.makespan_s
    useful = fsum(row.useful_gpu_s for row in result.jobs)
    return round(useful / capacity_gpu_s, DIGITS) if capacity_gpu_s else 0.0


def free_in_whole(timeline: Timeline) -> dict[str, float | None]:
    """Per tier, the share of free GPU time that was in domains of which nothing was taken; None if none was free."""
    free = fsum(timeline.gpus - part.mean for part in timeline.held)
    return {
        tier: round(min(1.0, fsum(values) / free), DIGITS) if free > 0 else None
        for tier, values in timeline.free_in_whole.items()
    }


def _total(values: Sequence[float]) -> float | None:
    return round(fsum(values), 3) if values else None
