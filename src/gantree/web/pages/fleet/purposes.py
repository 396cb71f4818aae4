"""What GPU-seconds were for: sums of an answer of the history by purpose, and the chart of them over time. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from gantree.accounting.usage import PURPOSES, UsageAmounts
from gantree.web.pages.step_charts import Chart, frame_of, on_average, stacked

Json = dict[str, Any]
HOUR_S = 3600.0
DRAWN = (
    "useful", "idle", "lost", "checkpoint", "starting", "restart", "unmeasured", "held", "reserved", "stranded", "down",
    "free",
)  # fmt: skip
"""All purposes, the lowest first."""
FIELDS = tuple(one.name for one in fields(UsageAmounts))


def amounts_of(row: Json) -> list[UsageAmounts]:
    """A row of the history, step by step."""
    return [
        UsageAmounts(**{name: row[name][place] for name in FIELDS})
        for place in range(len(row["allocated_gpu_s"]))
    ]


def gpu_s_of(row: Json) -> Mapping[str, list[float]]:
    """GPU-seconds of each step, by purpose."""
    amounts = amounts_of(row)
    return {name: [getattr(each, f"{name}_gpu_s") for each in amounts] for name in PURPOSES}


def sums_of(row: Json) -> Json:
    """GPU-hours of a row by purpose, with those that were allocated and those that there were.

    useful_share is useful of allocated, measured_share that of which counters told; None where nothing was allocated.
    """
    hours = {name: sum(gpu_s) / HOUR_S for name, gpu_s in gpu_s_of(row).items()}
    allocated, capacity = (sum(row[f"{name}_gpu_s"]) / HOUR_S for name in ("allocated", "capacity"))
    ran = sum(row["used_gpu_s"]) / HOUR_S
    return {
        "name": row["name"],
        **{name: max(0.0, amount) for name, amount in hours.items()},
        "allocated": allocated,
        "capacity": capacity,
        "allocated_share": allocated / capacity if capacity else None,
        "useful_share": max(0.0, hours["useful"]) / allocated if allocated else None,
        "measured_share": min(1.0, 1 - max(0.0, hours["unmeasured"]) / ran) if ran > 0 else None,
    }


def purposes_chart(found: Json, row: Json) -> Chart:
    """Purposes over each other; at the height of all stand the GPUs that there are."""
    gpu_s = _as_drawn(gpu_s_of(row))
    series = [(name, on_average(found, gpu_s[name])) for name in DRAWN]
    there = [(name, values) for name, values in series if any(value > 1e-9 for value in values)]
    high = max((sum(each) for each in zip(*(values for _, values in there), strict=True)), default=1.0)  # fmt: skip
    frame = frame_of(found, high or 1.0)
    shapes = stacked(frame, there, [f"purpose-{name}" for name, _ in there])
    return Chart("Purposes", shapes, frame.x_ticks(), frame.y_ticks(), _words(series))


def _as_drawn(gpu_s_of_purpose: Mapping[str, list[float]]) -> Mapping[str, list[float]]:
    """Without what is less than nothing, at the same height.

    Work that is lost is booked in the step in which that is known, and may leave less than nothing of other purposes.
    """
    drawn = {name: [max(0.0, each) for each in of] for name, of in gpu_s_of_purpose.items()}
    totals = [sum(step) for step in zip(*gpu_s_of_purpose.values(), strict=True)]
    heights = [sum(step) for step in zip(*drawn.values(), strict=True)]
    parts = [
        total / height if height else 0.0 for total, height in zip(totals, heights, strict=True)
    ]
    return {
        name: [each * part for each, part in zip(of, parts, strict=True)]
        for name, of in drawn.items()
    }


def _words(series: Sequence[tuple[str, Sequence[float]]]) -> str:
    total = sum(sum(values) for _, values in series)
    if not total:
        return "nothing is on record"
    shares = [(name, sum(values) / total) for name, values in series]
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares if share >= 0.005)
