"""Where the integrations put checkpoints below the job's `checkpoint.path`, and which of them is whole.

step-<n>            what the framework wrote: a file or a folder
step-<n>.complete   every rank has written its part; it holds a number that rises with each checkpoint completed here

What was completed last counts, not the largest step: a run that went back to an older checkpoint saves smaller steps
than those that are there.
"""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

_COMPLETE = re.compile(r"step-(\d+)\.complete", re.ASCII)
KEPT = 2
"""Checkpoints that are kept: the newest, and the one before it."""


def place_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step goes. Makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"step-{step}"


def complete(folder: Path, step: int) -> None:
    """Every rank has written its part: say so durably, and remove what is older than the one before.

    Called by one process, after all others have written.
    """
    number = 1 + max((_number_of(folder, each) for each in _steps(folder)), default=0)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    descriptor = os.open(folder / f"step-{step}.complete", flags, 0o600)
    try:
        os.write(descriptor, str(number).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for old in _steps(folder)[:-KEPT]:
        (folder / f"step-{old}.complete").unlink(missing_ok=True)
        _remove(folder / f"step-{old}")


def newest(folder: Path | None) -> Path | None:
    """The newest checkpoint that is whole; None where there is none."""
    steps = [] if folder is None else _steps(folder)
    return None if folder is None or not steps else folder / f"step-{steps[-1]}"


def _steps(folder: Path) -> list[int]:
    """Steps that are whole, in the order in which they were completed."""
    if not folder.is_dir():
        return []
    found = (_COMPLETE.fullmatch(path.name) for path in folder.iterdir())
    steps = [int(match[1]) for match in found if match]
    return sorted(steps, key=lambda step: (_number_of(folder, step), step))


def _number_of(folder: Path, step: int) -> int:
    """0 where none can be read."""
    try:
        return int((folder / f"step-{step}.complete").read_text("ascii"))
    except (OSError, ValueError):
        return 0


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
