"""The chart of what GPUs were for, over time. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gantree.accounting.purposes import gpu_s_of
from gantree.accounting.usage import WORD_OF
from gantree.web.pages.step_charts import Chart, frame_of, on_average, stacked

Json = dict[str, Any]
DRAWN = (
    "useful", "idle", "lost", "checkpoint", "starting", "restart", "unmeasured", "held", "reserved", "stranded", "down",
    "free",
)  # fmt: skip
"""All purposes, the lowest first."""


def purposes_chart(found: Json, row: Json) -> Chart:
    """Purposes over each other; at the height of all stand the GPUs that there are."""
    gpu_s = _as_drawn(gpu_s_of(row))
    series = [(name, on_average(found, gpu_s[name])) for name in DRAWN]
    there = [(name, values) for name, values in series if any(value > 1e-9 for value in values)]
    high = max((sum(each) for each in zip(*(values for _, values in there), strict=True)), default=1.0)  # fmt: skip
    frame = frame_of(found, high or 1.0)
    named = [(WORD_OF[name], values) for name, values in there]
    shapes = stacked(frame, named, [f"purpose-{name}" for name, _ in there])
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
    return ", ".join(
        f"{WORD_OF[name]} {100 * share:.0f} %" for name, share in shares if share >= 0.005
    )
