"""How far a job says that it is, as its rank 0 wrote it down through `gantree.training`. Only reading is here.

It is an observation: nothing is decided by it, so it is kept where the job's output is, and not in the journal. The
folder is the job's own: what is no record there counts as not there, and of a long one only the start is read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantree.executors.checkpoints import MAX_STEP, record_in


@dataclass(frozen=True, slots=True)
class Progress:
    """The last word of an attempt: step, loss, samples/s, seconds a step as measured; None where it did not say.

    at is when it said so, in seconds since 1970.
    """

    step: int
    loss: float | None
    samples_per_s: float | None
    step_s: float | None
    at: float


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
