"""The newest epoch of a leader that was obeyed on this machine, in a file that all daemons and shims of it share.

Who raises it holds the lock alone; a shim holds it together with others from its look at the number until it has put
itself down (shim.json). So once the number is raised no shim of an older leader comes up any more, and each that did
is seen by whoever raised it: a leader that is stopped between its decision and the start of a process starts nothing.
A daemon never holds the lock longer than it takes to write a line, so one that is stopped keeps nobody waiting.
"""

import errno
import fcntl
import os
import time
from pathlib import Path

from gantree.executors.shim import EPOCH, EPOCH_LOCK, read_json, write_json

FREE_WITHIN_S = 3.0
"""How long shims that are coming up may keep the lock."""
_LOOK_EVERY_S = 0.01


class EpochFile:
    """The number of one state directory, which must exist."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._file, self._lock = state_dir / EPOCH, state_dir / EPOCH_LOCK

    def newest(self) -> int:
        """The newest epoch that was obeyed; 0 before the first. Raises OSError."""
        return int((read_json(str(self._file)) or {"epoch": 0})["epoch"])

    def raise_to(self, epoch: int) -> None:
        """Obey no older epoch from now on, durably. A newer one stays. Raises OSError."""
        lock = os.open(self._lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(lock)
            if self.newest() < epoch:
                write_json(str(self._file), {"epoch": epoch})
        finally:
            os.close(lock)

    def _take(self, lock: int) -> None:
        deadline = time.monotonic() + FREE_WITHIN_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    reason = "a shim that is coming up keeps it"
                    raise OSError(errno.EBUSY, reason, str(self._lock)) from None
                time.sleep(_LOOK_EVERY_S)
