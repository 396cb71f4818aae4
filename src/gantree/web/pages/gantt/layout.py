"""The layout of the Gantt chart: rows of jobs, nodes or domains, lanes in a row, a time scale. Pure.

A row of a node has a lane for each GPU, and a bar covers its GPUs' lanes, one box for each run of neighbours. A row of
a job or a domain has as many lanes as bars lie beside each other at a time. Lengths are in pixels.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gantree.web.fabric.style import hue_of
from gantree.web.pages.gantt.scene import Bar

By = Literal["job", "node", "domain"]
LABEL_WIDTH = 190.0
WIDTH = 1240.0
TOP = 26.0
LEAST_WIDTH = 1.5
LEAST_SPAN_S = 600.0
LEAST_AHEAD, ROOM = 0.2, 0.02
"""The least part of a fitted span that lies ahead of now, and what is left free on either side of it."""
JOB_LANE, GPU_LANE, DOMAIN_LANE = 18.0, 6.0, 9.0
GAP = 5.0
TICKS = 8
STEPS_S = (
    60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
MOST_BOXES = 3000
"""Rows from the one on that would bring more are left out: 20,000 boxes hold up daemon and browser for seconds."""


@dataclass(frozen=True, slots=True)
class Places:
    """The GPUs of each node, and the domain right above it, in topology order. tier is that domain's."""

    gpus_of_node: Mapping[str, int]
    domain_of_node: Mapping[str, str]
    tier: str = ""


NOWHERE = Places({}, {})


@dataclass(frozen=True, slots=True)
class Box:
    """A bar, or a part of one, where it is drawn. first and lanes are the lanes of its row that it covers."""

    bar: Bar
    x: float
    y: float
    width: float
    height: float
    first: int
    lanes: int
    hue: int


@dataclass(slots=True)
class Row:
    """A row: its name, where a click on it goes, and its boxes."""

    name: str
    y: float = 0.0
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is drawn. left_out counts rows that are not; ticks are (x, seconds)."""

    width: float
    height: float
    rows: tuple[Row, ...]
    left_out: int
    now_x: float | None
    ticks: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Span:
    """The time that is shown."""

    since: float
    until: float

    def x(self, at: float) -> float:
        """Where a moment is."""
        inside = min(max(at, self.since), self.until)
        part = (inside - self.since) / (self.until - self.since)
        return LABEL_WIDTH + part * (WIDTH - LABEL_WIDTH)


def fitted(bars: Iterable[Bar], most: Span, now: float) -> Span:
    """The part of a span in which bars lie, with some room on either side, and now in it.

    Time limits alone, which may lie days ahead, do not widen it.
    """
    inside = [bar for bar in bars if bar.since < most.until and bar.until > most.since]
    since = max(most.since, min([now, *(bar.since for bar in inside)]))
    ends = [bar.until for bar in inside if bar.kind != "limit"]
    until = min(most.until, max([now, *ends]))
    width = max(LEAST_SPAN_S, until - since, (now - since) / (1 - LEAST_AHEAD))
    room = ROOM * width
    return Span(since - room, max(until, since + width) + room)


def picture(
    bars: Sequence[Bar],
    by: By,
    span: Span,
    now: float,
    most_rows: int,
    places: Places = NOWHERE,
    sought: str = "",
) -> Picture:
    """Lay out the bars of a span: rows of jobs in the order of the bars, others in topology order.

    Where a search finds names of rows, only these rows are drawn.
    """
    named = _by_row(bars, by, places)
    hits = {name: found for name, found in named.items() if sought and sought in name.lower()}
    named = hits or named
    names = list(named)
    if by != "job":
        order = places.gpus_of_node if by == "node" else places.domain_of_node.values()
        names = [name for name in dict.fromkeys(order) if name in named]
    rows, y, boxes = list[Row](), TOP, 0
    for name in names[:most_rows]:
        if boxes >= MOST_BOXES:
            break
        row = Row(name, y)
        if by == "node":
            lanes, lane = places.gpus_of_node[name], GPU_LANE
            placed = [run for bar in named[name] for run in _runs(bar, name)]
        else:
            lane = JOB_LANE if by == "job" else DOMAIN_LANE
            placed, lanes = _packed(named[name])
        row.height = lanes * lane
        row.boxes = [
            _box(bar, span, y, lane, first, count) for bar, first, count in placed[-MOST_BOXES:]
        ]
        boxes += len(row.boxes)
        rows.append(row)
        y += row.height + GAP
    now_x = span.x(now) if span.since <= now <= span.until else None
    return Picture(WIDTH, y, tuple(rows), len(names) - len(rows), now_x, tuple(_ticks(span)))


def _by_row(bars: Iterable[Bar], by: By, places: Places) -> dict[str, list[Bar]]:
    """Row -> its bars. A bar without a job's name is of a job that may not be told."""
    found: dict[str, list[Bar]] = {}
    for bar in bars:
        for name in _rows_of(bar, by, places):
            found.setdefault(name, []).append(bar)
    return found


def _rows_of(bar: Bar, by: By, places: Places) -> Iterable[str]:
    if by == "job":
        return [bar.job] if bar.job else []
    if by == "node":
        return bar.gpus_of_node
    known = (places.domain_of_node.get(node) for node in bar.gpus_of_node)
    return dict.fromkeys(domain for domain in known if domain is not None)


def _runs(bar: Bar, node: str) -> Iterable[tuple[Bar, int, int]]:
    """A bar on a node, as runs of neighbouring GPUs: the first, and how many."""
    runs: list[list[int]] = []
    for gpu in bar.gpus_of_node[node]:
        if runs and runs[-1][0] + runs[-1][1] == gpu:
            runs[-1][1] += 1
        else:
            runs.append([gpu, 1])
    return [(bar, first, count) for first, count in runs]


def _packed(bars: Sequence[Bar]) -> tuple[list[tuple[Bar, int, int]], int]:
    """Bars in lanes, so that none lies on another: each in the first lane that is empty by then; and how many lanes."""
    ends: list[float] = []
    placed = []
    for bar in sorted(bars, key=lambda each: each.since):
        lane = next((number for number, end in enumerate(ends) if end <= bar.since), len(ends))
        if lane == len(ends):
            ends.append(bar.until)
        ends[lane] = bar.until
        placed.append((bar, lane, 1))
    return placed, max(1, len(ends))


def _box(bar: Bar, span: Span, y: float, lane: float, first: int, lanes: int) -> Box:
    x, end = span.x(bar.since), span.x(bar.until)
    hue = hue_of(bar.job)
    return Box(
        bar, x, y + first * lane, max(LEAST_WIDTH, end - x), lanes * lane - 1, first, lanes, hue
    )


def _ticks(span: Span) -> Iterable[tuple[float, float]]:
    """Round moments, at most so many."""
    width = span.until - span.since
    step = next((each for each in STEPS_S if width / each <= TICKS), STEPS_S[-1])
    at = -(-span.since // step) * step
    while at <= span.until:
        yield span.x(at), at
        at += step


def order_of_jobs(bars: Iterable[Bar], matches: Callable[[Bar], bool]) -> list[Bar]:
    """Bars of the matching jobs: running ones, largest first, then those with a reservation, then the others."""
    rank = {"running": 0, "guessed": 0, "limit": 0, "promised": 1, "estimated": 1, "past": 2}
    of_job: dict[str, list[Bar]] = {}
    for bar in bars:
        if matches(bar):
            of_job.setdefault(bar.job, []).append(bar)

    def key(job: str) -> tuple[int, float]:
        own = of_job[job]
        first = min(rank[bar.kind] for bar in own)
        size = -max(bar.gpus for bar in own)
        return first, (size, min(bar.since for bar in own), -max(bar.until for bar in own))[first]

    return [bar for job in sorted(of_job, key=key) for bar in of_job[job]]
