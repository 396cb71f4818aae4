"""Reads the progress of an attempt that rank 0 reports through `gantree.training`: a file in the run directory.

The folder is the job's own: a file that is no valid record counts as missing, and only its first bytes are read.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantree.executors.local.checkpoints import record_in, start_of
from gantree.executors.progress import Progress
from gantree.executors.report_records import progress_of

LONGEST_CURVE = 1 << 20
"""Bytes that are read of a curve; the helper writes at most a quarter of that."""
MOST_POINTS = 2000


def progress_in(folder: Path) -> Progress | None:
    """What the `progress` folder of a run directory holds; None as long as there is nothing."""
    return progress_of(record_in(folder / "rank-0.json"))


def curve_in(folder: Path) -> tuple[Progress, ...]:
    """The reports that the folder keeps, oldest first; lines that are no reports are left out."""
    text = start_of(folder / "rank-0.curve.jsonl", LONGEST_CURVE).decode(errors="replace")
    found = (progress_of(record) for record in _records(text))
    return tuple(each for each in found if each is not None)[:MOST_POINTS]


def _records(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record
