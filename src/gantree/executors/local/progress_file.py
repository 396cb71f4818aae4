"""Reads the progress of an attempt that rank 0 reports through `gantree.training`: a file in the run directory.

The folder is the job's own: a file that is no valid record counts as missing, and only its first bytes are read.
"""

from pathlib import Path
from typing import Any

from gantree.executors.local.checkpoints import MAX_STEP, record_in
from gantree.executors.progress import Progress


def progress_in(folder: Path) -> Progress | None:
    """What the `progress` folder of a run directory holds; None as long as there is nothing."""
    record = record_in(folder / "rank-0.json")
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
