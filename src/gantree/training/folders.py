"""Checkpoint folders of the integrations, below the job's `checkpoint.path`, and which of them are complete.

step-<n>            the checkpoint, a file or a folder that the framework writes
step-<n>.complete   exists once every rank has written its part; holds a number that rises with each completion

The checkpoint completed last is the newest, not the one of the largest step: a run that resumed from an older
checkpoint saves smaller steps than existing ones.
"""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

_COMPLETE = re.compile(r"step-(\d+)\.complete", re.ASCII)
KEPT = 2
"""Complete checkpoints that are kept: the newest, and the one before it."""


def place_of(folder: Path, step: int) -> Path:
    """Return the path for the checkpoint of a step; creates the folder above it."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"step-{step}"


def complete(folder: Path, step: int) -> None:
    """Mark a checkpoint durably as complete, and remove all but the newest KEPT.

    Call it in one process, after all ranks have written.
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
    """Return the newest complete checkpoint; None if there is none."""
    steps = [] if folder is None else _steps(folder)
    return None if folder is None or not steps else folder / f"step-{steps[-1]}"


def _steps(folder: Path) -> list[int]:
    """Return the steps of complete checkpoints, in order of completion."""
    if not folder.is_dir():
        return []
    found = (_COMPLETE.fullmatch(path.name) for path in folder.iterdir())
    steps = [int(match[1]) for match in found if match]
    return sorted(steps, key=lambda step: (_number_of(folder, step), step))


def _number_of(folder: Path, step: int) -> int:
    """Return the completion number of a checkpoint; 0 if it is not readable."""
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
