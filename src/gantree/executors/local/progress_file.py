"""Reads the progress of an attempt that rank 0 reports through `gantree.training`: a file in the run directory.

The folder is the job's own: a file that is no valid record counts as missing, and only its first bytes are read.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantree.executors.local.checkpoints import MAX_STEP, record_in, start_of
from gantree.executors.progress import Progress

LONGEST_CURVE = 1 << 20
"""Bytes that are read of a curve; the helper writes at most a quarter of that."""
MOST_POINTS = 2000


def progress_in(folder: Path) -> Progress | None:
    """What the `progress` folder of a run directory holds; None as long as there is nothing."""
    return _progress(record_in(folder / "rank-0.json"))


def curve_in(folder: Path) -> tuple[Progress, ...]:
    """The reports that the folder keeps, oldest first; lines that are no reports are left out."""
    text = start_of(folder / "rank-0.curve.jsonl", LONGEST_CURVE).decode(errors="replace")
    found = (_progress(record) for record in _records(text))
    return tuple(each for each in found if each is not None)[:MOST_POINTS]


def _records(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _progress(record: dict[str, Any]) -> Progress | None:
    step, at = record.get("step"), _number(record, "at")
    if isinstance(step, bool) or not isinstance(step, int) or abs(step) >= MAX_STEP or at is None:
        return None
    loss, samples_per_s, step_s = (
        _number(record, name) for name in ("loss", "samples_per_s", "step_s")
    )
    return Progress(step, loss, samples_per_s, step_s, at)


def _number(record: dict[str, Any], name: str) -> float | None:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
