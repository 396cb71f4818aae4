"""Charts of the history: GPUs, queues, waits, preemptions. Pure."""

from typing import Any

from gantree.web.pages.step_charts import Chart, Shape, frame_of, on_average, stacked

Json = dict[str, Any]
QUEUES_SHOWN = 6
OTHERS = "others"


def charts(usage: Json, queues: Json, waits: Json) -> list[Chart]:
    """The charts of a period, of the three answers of the history."""
    whole = usage["rows"][0] if usage["rows"] else None
    if whole is None:
        return []
    return [_gpus(usage, whole), _shares(usage, queues), _waits(waits), _preemptions(usage, whole)]


def _gpus(found: Json, row: Json) -> Chart:
    capacity = on_average(found, row["capacity_gpu_s"])
    allocated, used = (on_average(found, row[f"{name}_gpu_s"]) for name in ("allocated", "used"))
    frame, nothing = frame_of(found, max(*capacity, *allocated, 1.0)), [0.0] * len(allocated)
    shapes = (
        Shape("allocated", "allocated", frame.area(allocated, nothing)),
        Shape("used", "used", frame.area(used, nothing)),
        Shape("capacity", "capacity", frame.line([each or None for each in capacity])),
    )
    there, held = sum(row["capacity_gpu_s"]), sum(row["allocated_gpu_s"])
    share = f", {100 * held / there:.0f} % of {there / 3600:,.0f}" if there else ""
    words = (
        f"{held / 3600:,.1f} GPU-hours allocated{share}; {sum(row['used_gpu_s']) / 3600:,.1f} used"
    )
    return Chart("GPUs", shapes, frame.x_ticks(), frame.y_ticks(), words)


def _shares(found: Json, queues: Json) -> Chart:
    rows = [row for row in queues["rows"] if sum(row["allocated_gpu_s"]) > 0]
    series = [(row["name"], on_average(found, row["allocated_gpu_s"])) for row in rows]
    if len(series) > QUEUES_SHOWN:
        rest = [sum(each) for each in zip(*(values for _, values in series[QUEUES_SHOWN:]), strict=True)]  # fmt: skip
        series = [*series[:QUEUES_SHOWN], (OTHERS, rest)]
    high = max((sum(each) for each in zip(*(v for _, v in series), strict=True)), default=1.0)
    frame = frame_of(found, high or 1.0)
    looks = [f"hue-{place}" for place in range(len(series))]
    shapes = stacked(frame, series, looks)
    held = [sum(row["allocated_gpu_s"]) for row in rows]
    amounts = [*held[:QUEUES_SHOWN], sum(held[QUEUES_SHOWN:])]
    named = zip((name for name, _ in series), amounts, strict=False)
    parts = [f"{name} {100 * amount / sum(held):.0f} %" for name, amount in named]
    words = "Allocated: " + (", ".join(parts) or "nothing")
    return Chart("Queues", shapes, frame.x_ticks(), frame.y_ticks(), words)


def _waits(found: Json) -> Chart:
    steps = found["rows"][0]["steps"] if found["rows"] else []
    half, most = ([step[name] for step in steps] for name in ("p50_s", "p99_s"))
    scale, unit = _unit(max((each for each in most if each is not None), default=1.0))
    high = max((each / scale for each in most if each is not None), default=1.0)
    frame = frame_of(found, high or 1.0)
    lines = (("half of the jobs", "p50", half), ("99 of 100", "p99", most))
    shapes = tuple(
        Shape(name, look, frame.line([None if each is None else each / scale for each in values]))
        for name, look, values in lines
        if values
    )
    whole = found["rows"][0]["all"] if found["rows"] else {"jobs": 0}
    words = f"{whole['jobs']:,} jobs started for the first time"
    if whole["jobs"]:
        half_s, most_s = (f"{whole[name] / scale:,.3g}{unit}" for name in ("p50_s", "p99_s"))
        words += f"; half waited at most {half_s}, 99 of 100 {most_s}"
    return Chart("Waits", shapes, frame.x_ticks(), frame.y_ticks(unit), words)


def _unit(seconds: float) -> tuple[float, str]:
    if seconds >= 7200:
        return 3600.0, " h"
    return (60.0, " min") if seconds >= 120 else (1.0, " s")


def _preemptions(found: Json, row: Json) -> Chart:
    counts = [float(each) for each in row["preempted"]]
    frame = frame_of(found, max(1.0, *counts))
    bars = Shape("preemptions", "preempted", frame.area(counts, [0.0] * len(counts)))
    lost = sum(row["lost_gpu_s"]) / 3600
    words = f"{sum(row['preempted']):,} preemptions; {lost:,.3g} GPU-hours of work done again"
    return Chart("Preemptions", (bars,), frame.x_ticks(), frame.y_ticks(), words)
