"""Signals for processes that have a handler for them: others would be killed.

Standard library only, nothing of gantree: `shim` loads it from the file beside it, once there is such a signal.
"""

import os


def handles(pid: int, number: int) -> bool:
    """True if the process has installed a handler for the signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - pathlib costs 10 ms
            caught = next(line for line in file if line.startswith(b"SigCgt:"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def signal_ready(pids: set[int], number: int) -> None:
    """Signal those that have a handler for it; they are in the set no more."""
    for pid in [pid for pid in sorted(pids) if handles(pid, number)]:
        try:  # noqa: SIM105 - contextlib costs 10 ms of every start
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass
        pids.discard(pid)
