"""Why a rank's process could not be started: what `failed.json` and the log of the rank have of it.

Standard library only, nothing of gantree: `shim` loads it from the file beside it, before it forks.
"""

import errno
import os
from typing import Any

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells count
_LONGEST_REASON = 400
"""Characters: the complaints of several ranks share a pipe, which keeps up to 4096 bytes of each together."""
_NO_PROGRAM = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC})
"""Errors of exec that another attempt would meet again."""


def start_failure(
    rank: int, doing: str, error: BaseException, is_exec: bool = False
) -> dict[str, Any]:
    """What `failed.json` has. doing is what failed; is_exec: it was the command itself. final: it would fail again."""
    number = getattr(error, "errno", None)
    why = getattr(error, "strerror", None) or str(error)
    return {
        "rank": rank,
        "reason": f"could not {doing[:_LONGEST_REASON]}: {why[:_LONGEST_REASON]}",
        "code": NOT_FOUND if number == errno.ENOENT else NOT_EXECUTABLE,
        "final": is_exec and number in _NO_PROGRAM,
    }


def check_failure(rank: int, report: Any) -> dict[str, Any]:
    """What `failed.json` has after a check before the start that did not end with 0, by its report, if there is one."""
    told = report or {"sentence": "the check before the start ended without a report"}
    return {
        "rank": rank,
        "reason": told["sentence"],
        "code": NOT_EXECUTABLE,
        "final": told.get("state") == "skipped",
        "check": told.get("outcome", "fail"),
    }


def log_failure(reason: str) -> None:
    """Say it on standard error, the log of the rank, where a user looks first. A full disk takes nothing more."""
    try:  # noqa: SIM105 - contextlib costs 10 ms of every start
        os.write(2, f"gantree: {reason}\n".encode(errors="replace"))
    except OSError:
        pass
