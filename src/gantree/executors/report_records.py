"""Reads the records in which ranks report progress and own times (`gantree.training`), from files or requests. Pure.

A record comes from the job, which may write anything: what is no valid record counts as missing.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeGuard

from gantree.executors.progress import Progress

MAX_STEP = 2**63
MOST_STEPS = 256
"""Steps of a rank that count; the helper reports no more."""


def progress_of(record: Mapping[str, Any]) -> Progress | None:
    """The progress that a record reports; None for one that is not valid."""
    step, at = record.get("step"), _number(record.get("at"))
    if not is_step(step) or at is None:
        return None
    loss, samples_per_s, step_s = (
        _number(record.get(name)) for name in ("loss", "samples_per_s", "step_s")
    )
    return Progress(step, loss, samples_per_s, step_s, at)


def own_s_of_step(rows: object) -> dict[int, float]:
    """The own times of steps, in seconds, that the valid rows of a record report, oldest first."""
    found: dict[int, float] = {}
    for row in rows[-MOST_STEPS:] if isinstance(rows, list) else ():
        if not isinstance(row, list) or len(row) != 2:
            continue
        step, own_s = row[0], finite(row[1])
        if is_step(step) and own_s is not None and own_s > 0:
            found[step] = own_s
    return found


def is_step(value: object) -> TypeGuard[int]:
    """Whether a value is the number of a step."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_STEP


def finite(value: object) -> float | None:
    """A finite number; None for all else."""
    found = _number(value)
    return found if found is not None and isfinite(found) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
