"""Charts over time: allocation, queue length, queues with their fair shares, fairness, fragmentation."""

from collections.abc import Mapping, Sequence
from typing import Any

from gantree.sim.charts import Chart, lines
from gantree.sim.measures.fairness import guarantees_of, weights_of
from gantree.sim.measures.timeline import Timeline, average
from gantree.sim.report.document import Section, Table
from gantree.sim.results import Result

HOURS = "hours from the first submission"
OTHERS = "other queues"
QUEUES_SHOWN = 7
"""Queues with a line of their own: those that held most. The rest is one line."""
LOW = 150
"""Height of the smaller charts in pixels."""


def allocation_section(timeline: Timeline) -> Section:
    """GPUs that gangs held, and the part of them whose work was kept."""
    rows = [
        _row(timeline, part, {"GPUs": mean, "series": name, "low": low, "high": high})
        for name, told in (
            ("held", [(part.mean, part.least, part.most) for part in timeline.held]),
            ("useful", [(useful, useful, useful) for useful in timeline.useful]),
            ("all", [(timeline.gpus,) * 3] * timeline.parts),
        )
        for part, (mean, low, high) in enumerate(told)
    ]
    notes = [
        "GPUs that gangs held; the band reaches from the least to the most in each part of the time. Useful is held"
        " time whose work was kept, spread evenly over each job.",
    ]
    return Section("Allocation and use", notes, [_chart(rows, "GPUs", "series", band=True)])


def waiting_section(timeline: Timeline) -> Section:
    """Jobs that wait."""
    rows = [
        _row(timeline, number, {"jobs": part.mean, "low": part.least, "high": part.most})
        for number, part in enumerate(timeline.waiting)
    ]
    return Section("Queue length", ["Jobs that wait."], [_chart(rows, "jobs", None, band=True)])


def fairness_section(result: Result, timeline: Timeline) -> Section:
    """What each queue held against its fair share, and Jain's index."""
    notes = [
        "The fair share of a queue is its guarantee, and then max-min fair by weight, up to what its jobs ask for."
        " Jain's index of x = held / fair share over the n queues that ask for GPUs is (sum x)^2 / (n sum x^2): 1 if"
        " all get the same part of their share, 1/n if one gets everything (Jain, Chiu, Hawe, DEC-TR-301, 1984).",
    ]
    held, shares = (
        largest_queues(told, timeline.held_of_queue)
        for told in (timeline.held_of_queue, timeline.share_of_queue)
    )
    charts = [_chart(_by_queue(timeline, held, "GPUs held"), "GPUs held", "queue", height=200)]
    if len(held) > 1:
        charts.append(
            _chart(_by_queue(timeline, shares, "fair share"), "fair share", "queue", height=200)
        )
        jain = [
            _row(timeline, part, {"Jain's index": index})
            for part, index in enumerate(timeline.jain)
            if index is not None
        ]
        charts.append(_chart(jain, "Jain's index", None, height=LOW))
    return Section("Fairness between queues", notes, charts, [_queue_table(result, timeline)])


def fragmentation_section(timeline: Timeline) -> Section:
    """Free GPUs, and those of them in domains of which nothing is taken."""
    free = [timeline.gpus - part.mean for part in timeline.held]
    told = {"anywhere": free, **{f"in a free {t}": v for t, v in timeline.free_in_whole.items()}}
    rows = [
        _row(timeline, part, {"free GPUs": value, "free": name})
        for name, values in told.items()
        for part, value in enumerate(values)
    ]
    notes = ["Free GPUs, and how many of them are in domains of which nothing is taken."]
    return Section("Fragmentation", notes, [_chart(rows, "free GPUs", "free")])


def largest_queues(
    values: Mapping[str, Sequence[float]], held: Mapping[str, Sequence[float]]
) -> dict[str, Sequence[float]]:
    """The values of the queues that held most, and the sum of the others."""
    ordered = sorted(held, key=lambda queue: (-sum(held[queue]), queue))
    shown, rest = ordered[:QUEUES_SHOWN], ordered[QUEUES_SHOWN:]
    found = {queue: values[queue] for queue in shown}
    if rest:
        found[OTHERS] = [
            round(sum(each), 6) for each in zip(*(values[queue] for queue in rest), strict=True)
        ]
    return found


def _queue_table(result: Result, timeline: Timeline) -> Table:
    queues = list(timeline.held_of_queue)
    weights = weights_of(queues, result.policy.queues)
    guarantees = guarantees_of(queues, result.policy.queues)
    jobs = dict.fromkeys(queues, 0)
    for row in result.jobs:
        jobs[row.queue] += 1
    rows = [
        (
            queue,
            jobs[queue],
            weights[queue],
            guarantees[queue] or None,
            average(timeline.held_of_queue[queue]),
            average(timeline.share_of_queue[queue]),
        )
        for queue in queues
    ]
    head = (
        "queue",
        "jobs",
        "weight of all",
        "guaranteed GPUs",
        "mean GPUs held",
        "mean fair share",
    )
    return Table(head, rows)


def _by_queue(
    timeline: Timeline, told: Mapping[str, Sequence[float]], name: str
) -> list[dict[str, Any]]:
    return [
        _row(timeline, part, {name: value, "queue": queue})
        for queue, values in told.items()
        for part, value in enumerate(values)
    ]


def _row(timeline: Timeline, part: int, told: Mapping[str, Any]) -> dict[str, Any]:
    short = {k: round(v, 3) if isinstance(v, float) else v for k, v in told.items()}
    return {HOURS: round(timeline.hours(part), 3), **short}


def _chart(
    rows: Sequence[Mapping[str, Any]],
    value: str,
    series: str | None,
    *,
    band: bool = False,
    height: int = 240,
) -> Chart:
    ends = ("low", "high") if band else None
    return lines(rows, HOURS, value, series, band=ends, width=680, height=height)
