"""Which queue had which GPUs when: a row for each node, or for each domain of the narrowest tier with few enough.

With few attempts every one is drawn, at its GPUs. With more, each row is cut into parts of the time: the colour is the
queue that held most of the domain then, the opacity how much of it was held by anybody.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gantree.sim.charts import Chart, altair_library, empty_chart, finished
from gantree.sim.measures.attempts import attempts_of, rows_of
from gantree.sim.measures.steps import Changes, edges, means
from gantree.sim.measures.timeline import span_of
from gantree.sim.record import Span
from gantree.sim.report.document import Section
from gantree.sim.report.over_time import HOURS, OTHERS, QUEUES_SHOWN
from gantree.sim.results import JobRow, Result

ROWS = 64
"""Rows at most, unless even the widest tier has more."""
MARKS = 2_000
"""Attempts times the rectangles of each, at most; with more of them the rows are cut into parts."""
PARTS = 96
"""Parts of the time in each row where attempts are not drawn one by one."""
WIDTH, ROW_HEIGHT, LEAST_HEIGHT = 680, 16, 120

Mark = dict[str, Any]


def gantt_section(result: Result) -> Section | None:
    """The chart by domain; None if nothing was placed."""
    rows = _Rows(result)
    marks = rows.attempts()
    if marks is None:
        marks, what = (
            rows.parts(),
            "the colour is the queue that held most, the opacity how much was held",
        )
    else:
        what = "each attempt at its GPUs, coloured by queue"
    if not marks:
        return None
    notes = [f"One row a {rows.tier}: {what}."]
    return Section("Gantt by domain", notes, [_chart(marks, rows.names, rows.queues)])


class _Rows:
    """The domains of one tier as rows, and where in its row each GPU is."""

    def __init__(self, result: Result) -> None:
        fabric = result.fabric
        counts = [len(names) for names in fabric.names_of_domain]
        number = max((t for t in range(1, len(counts)) if counts[t] <= ROWS), default=1)
        self.tier, self.names = fabric.tiers[number], list(fabric.names_of_domain[number])
        self.result = result
        self._row_of_node = fabric.domain_of_node[number].tolist()
        self._index_of_node = fabric.index_of_node
        before = np.concatenate([[0], np.cumsum(fabric.gpus_of_node)])
        first = before[fabric.first_node_of_domain[number][:-1]]
        self._gpus_of_row = np.diff(before[fabric.first_node_of_domain[number]]).tolist()
        self._first_gpu = (before[:-1] - first[fabric.domain_of_node[number]]).tolist()
        held: dict[str, float] = {}
        for job in rows_of(result):
            held[job.queue] = held.get(job.queue, 0.0) + job.gpu_s_held
        self.queues = sorted(held, key=lambda queue: (-held[queue], queue))[:QUEUES_SHOWN]
        if len(held) > QUEUES_SHOWN:
            self.queues.append(OTHERS)
        self.start_s, self.end_s = span_of(result)

    def attempts(self) -> list[Mark] | None:
        """A rectangle for each run of GPUs of each attempt; None if there are too many."""
        marks: list[Mark] = []
        for job, span in attempts_of(self.result):
            for row, first, after in self._runs(span):
                gpus = max(1, self._gpus_of_row[row])
                marks.append(self._mark(job, span, row, first / gpus, after / gpus))
            if len(marks) > MARKS:
                return None
        return marks

    def parts(self) -> list[Mark]:
        """A rectangle for each row and part of the time in which something was held."""
        at = edges(self.start_s, self.end_s, PARTS)
        hours = [round((moment - self.start_s) / 3600, 3) for moment in at.tolist()]
        marks: list[Mark] = []
        for row, changes in enumerate(self._changes()):
            held = {
                queue: means(told, at) / self._gpus_of_row[row] for queue, told in changes.items()
            }
            for part in range(PARTS if held else 0):
                shares = {queue: float(values[part]) for queue, values in held.items()}
                share = round(min(1.0, sum(shares.values())), 3)
                if share:
                    most = max(shares, key=lambda queue: shares[queue])
                    span = {"x": hours[part], "x2": hours[part + 1], "y": row, "y2": row + 0.9}
                    marks.append({**span, "held": share, "queue": most})
        return marks

    def _mark(self, job: JobRow, span: Span, row: int, low: float, high: float) -> Mark:
        to_s = self.end_s if span.to_s is None else span.to_s
        return {
            "x": round((span.from_s - self.start_s) / 3600, 4),
            "x2": round((to_s - self.start_s) / 3600, 4),
            "y": round(row + 0.9 * low, 4),
            "y2": round(row + 0.9 * high, 4),
            "job": job.job_id,
            "queue": self._queue(job),
            "GPUs": span.gpus,
            "stopped": span.cause,
        }

    def _queue(self, job: JobRow) -> str:
        return job.queue if job.queue in self.queues else OTHERS

    def _changes(self) -> list[dict[str, Changes]]:
        """For each row and queue, the changes of the number of GPUs held there."""
        changes: list[dict[str, Changes]] = [{} for _ in self.names]
        for job, span in attempts_of(self.result):
            for row, first, after in self._runs(span):
                told = changes[row].setdefault(self._queue(job), Changes())
                told.held(span.from_s, span.to_s, after - first)
        return changes

    def _runs(self, span: Span) -> Iterator[tuple[int, int, int]]:
        """(row, first GPU of the row, the one after the last) of each run of neighbouring GPUs of an attempt."""
        gpus_of_row: dict[int, set[int]] = {}
        for member in span.placement.members:
            node = self._index_of_node.get(member.node)
            if node is not None:
                first = self._first_gpu[node]
                here = gpus_of_row.setdefault(self._row_of_node[node], set())
                here.update(first + gpu for gpu in (*member.gpus, *member.parts))
        for row, gpus in gpus_of_row.items():
            for first, after in _runs(sorted(gpus)):
                yield row, first, after


def _runs(rising: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rising numbers as runs: (first, one after the last)."""
    start = 0
    for position in range(1, len(rising) + 1):
        if position == len(rising) or rising[position] != rising[position - 1] + 1:
            yield rising[start], rising[position - 1] + 1
            start = position


def _chart(marks: Iterable[Mark], names: Sequence[str], queues: Sequence[str]) -> Chart:
    alt = altair_library()
    values = list(marks)
    labels = alt.Axis(
        values=[row + 0.45 for row in range(len(names))],
        labelExpr=f"{json.dumps(list(names))}[floor(datum.value)]",
        grid=False,
        ticks=False,
        labelOverlap="greedy",
    )
    colours = alt.Scale(domain=list(queues))
    encoding: Mapping[str, Any] = {
        "x": alt.X("x:Q", title=HOURS, scale=alt.Scale(nice=False)),
        "x2": "x2:Q",
        "y": alt.Y("y:Q", title=None, axis=labels, scale=alt.Scale(domain=[0, len(names)], reverse=True, nice=False)),
        "y2": "y2:Q",
        "color": alt.Color("queue:N", title="queue", scale=colours, legend=alt.Legend(symbolOpacity=1)),
    }  # fmt: skip
    if "held" in values[0]:
        opacity = alt.Scale(domain=[0, 1], range=[0.08, 1])
        encoding = {**encoding, "opacity": alt.Opacity("held:Q", scale=opacity, legend=None)}
        shown = {"held": "share held", "queue": "queue"}
    else:
        shown = {"job": "job", "queue": "queue", "GPUs": "GPUs", "stopped": "stopped by"}
    tips = [
        alt.Tooltip(field, type="nominal", title=title)
        for field, title in {"x": "from, h", "x2": "to, h", **shown}.items()
    ]
    drawn = empty_chart().mark_rect().encode(**encoding, tooltip=tips)
    height = max(LEAST_HEIGHT, ROW_HEIGHT * len(names))
    return finished(drawn, values, width=WIDTH, height=height)
