"""Useful time of queues over time as a map of cells: a row for each queue, a column for each step. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.web.pages.step_charts import Frame, Shape

Json = dict[str, Any]
LEFT = 150.0
ROW, GAP, AXIS = 20.0, 2.0, 24.0
LONGEST_NAME = 22
QUEUES_SHOWN = 12
UNMEASURED = ("not measured", "unmeasured")
WEIGHED = ("useful", "idle", "lost")
LEVELS = (
    (0.25, "under 25 % useful", "use-0"),
    (0.5, "25 to 50 %", "use-1"),
    (0.75, "50 to 75 %", "use-2"),
    (float("inf"), "75 % and more", "use-3"),
)
"""Below which share, in words, and the class of its cells."""


@dataclass(frozen=True, slots=True)
class Heat:
    """The map; rows are (base line, short name, name), x_ticks (place, text), shapes the cells of each level."""

    title: str
    words: str
    rows: tuple[tuple[float, str, str], ...]
    shapes: tuple[Shape, ...]
    x_ticks: tuple[tuple[float, str], ...]
    height: float
    left: float = LEFT


def heat(found: Json, rows: Sequence[Json]) -> Heat:
    """The map of the rows of an answer of the history, the largest holders first."""
    shown = [row for row in rows if sum(row["allocated_gpu_s"]) > 0][:QUEUES_SHOWN]
    frame = Frame(found["starts"], found["step_s"], found["until"], 1.0, LEFT)
    cells: dict[str, list[str]] = {look: [] for _, look in _looks()}
    for place, row in enumerate(shown):
        for look, cell in _cells(frame, row, place * (ROW + GAP)):
            cells[look].append(cell)
    shapes = tuple(Shape(name, look, "".join(cells[look])) for name, look in _looks())
    names = tuple(
        (place * (ROW + GAP) + ROW - 6, _short(row["name"]), row["name"])
        for place, row in enumerate(shown)
    )
    height = len(shown) * (ROW + GAP) + AXIS
    return Heat("Useful time", _words(shown), names, shapes, frame.x_ticks(), height)


def share_of(useful: float, idle: float, lost: float) -> float | None:
    """The useful part of what counters told of, and of work that is lost; None where there is neither."""
    whole = max(0.0, useful) + max(0.0, idle) + max(0.0, lost)
    return max(0.0, useful) / whole if whole > 0 else None


def _looks() -> list[tuple[str, str]]:
    return [*((name, look) for _, name, look in LEVELS), UNMEASURED]


def _cells(frame: Frame, row: Json, top: float) -> Iterator[tuple[str, str]]:
    """(class, path) of each step in which the queue held GPUs."""
    figures = [row[f"{name}_gpu_s"] for name in ("allocated", *WEIGHED)]
    for (left, right), allocated, *amounts in zip(frame.ends(), *figures, strict=True):
        if allocated > 0:
            look = _look(share_of(*amounts))
            yield look, f"M{left:.1f},{top:.1f}H{right:.1f}v{ROW:.0f}H{left:.1f}Z"


def _look(share: float | None) -> str:
    if share is None:
        return UNMEASURED[1]
    return next(look for below, _, look in LEVELS if share < below)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def _words(rows: Sequence[Json]) -> str:
    shares = [
        (row["name"], share_of(*(sum(row[f"{name}_gpu_s"]) for name in WEIGHED))) for row in rows
    ]
    told = [f"{name} {100 * share:.0f} %" for name, share in shares if share is not None]
    return f"of what counters told: {', '.join(told)}" if told else "no counters told"
