"""CSV for spreadsheets."""

import csv
import io
from collections.abc import Iterable, Sequence


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under their head, with no cell that a spreadsheet takes for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_safe(cell) for cell in row] for row in rows)
    return text.getvalue()


def _safe(cell: object) -> object:
    is_formula = isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@")
    return f"'{cell}" if is_formula else cell
