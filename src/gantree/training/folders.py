"""Where the integrations put checkpoints below the job's `checkpoint.path`, and which of them is whole.

step-<n>            what the framework wrote: a file or a folder
step-<n>.complete   every rank has written its part
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
    descriptor = os.open(folder / f"step-{step}.complete", os.O_WRONLY | os.O_CREAT, 0o600)
    os.fsync(descriptor)
    os.close(descriptor)
    for old in sorted(_steps(folder))[:-KEPT]:
        (folder / f"step-{old}.complete").unlink(missing_ok=True)
        _remove(folder / f"step-{old}")


def newest(folder: Path | None) -> Path | None:
    """The newest checkpoint that is whole; None where there is none."""
    steps = [] if folder is None else _steps(folder)
    return None if folder is None or not steps else folder / f"step-{max(steps)}"


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    found = (_COMPLETE.fullmatch(path.name) for path in folder.iterdir())
    return [int(match[1]) for match in found if match]


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
