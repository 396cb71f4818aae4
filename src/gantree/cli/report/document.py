"""A report as text in tables: what stands in it, and nothing of how it looks."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column: figures are on the right, names on the left. width is relative to the other columns.

    wraps: a longer cell takes several lines; else its end is cut off where a page has no room.
    """

    title: str
    width: float = 1.0
    is_figure: bool = True
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns; total is the last row, set off. note is the sentence above the table."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """headlines are (figure, what it is), facts (name, value), notes (heading, text).

    made_at is the moment of its making, in seconds since 1970.
    """

    title: str
    subtitle: str
    made_at: float
    facts: Sequence[tuple[str, str]]
    headlines: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    notes: Sequence[tuple[str, str]]
