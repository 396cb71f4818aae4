"""The figures of all workloads as a table: medians over the rounds, gantree's and the other scheduler's."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

Json = dict[str, Any]
Done = Mapping[tuple[str, str, int], Json]
HEAD = (
    "list", "pods/s", "times", "p99, s", "after the last, s", "requests", "CPU of the scheduler, s",
    "of the server, s", "MB",
)  # fmt: skip
FIGURES = (
    ("p99_ms", 1e-3, 2), ("after_last_ms", 1e-3, 2), ("requests", 1, 0), ("scheduler_cpu_s", 1, 1),
    ("server_cpu_s", 1, 1), ("memory_MB", 1, 0),
)  # fmt: skip
"""Each with its factor and how many digits it has."""
REASONS = ("cannot run", "not finished")


def table(titles: Sequence[str], other: str, done: Done, *, in_markdown: bool = False) -> str:
    """All rows: for people in a terminal, or in Markdown."""
    rows = [
        _row(title, *(_of(done, title, name) for name in ("gantree", other))) for title in titles
    ]
    if in_markdown:
        return "\n".join(map(_in_markdown, (HEAD, ("---",) * len(HEAD), *rows)))
    widths = [max(len(row[column]) for row in (HEAD, *rows)) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in (HEAD, *rows)
    )


def _of(done: Done, title: str, name: str) -> list[Json]:
    return [figures for key, figures in done.items() if key[:2] == (title, name)]


def _row(title: str, ours: list[Json], theirs: list[Json]) -> tuple[str, ...]:
    rates = _pair(ours, theirs, "pods_per_s", 1, 0)
    return (title, rates, _times(ours, theirs), *(_pair(ours, theirs, *each) for each in FIGURES))


def _times(ours: list[Json], theirs: list[Json]) -> str:
    """The ratio of the rates, or why there is none."""
    rates = _median(ours, "pods_per_s"), _median(theirs, "pods_per_s")
    if rates[0] and rates[1]:
        return f"{rates[0] / rates[1]:.2f}"
    return (
        "; ".join(dict.fromkeys((*_reasons("gantree", ours), *_reasons("the other", theirs))))
        or "-"
    )


def _reasons(name: str, rows: list[Json]) -> Iterator[str]:
    yield from (
        f"{name}: {reason}: {row[reason]}" for row in rows for reason in REASONS if reason in row
    )


def _pair(ours: list[Json], theirs: list[Json], figure: str, factor: float, digits: int) -> str:
    values = _median(ours, figure), _median(theirs, figure)
    return ", ".join("-" if each is None else f"{each * factor:.{digits}f}" for each in values)


def _median(rows: list[Json], figure: str) -> float | None:
    found = [row[figure] for row in rows if figure in row]
    return median(found) if found else None


def _in_markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
