"""Deletes the directories of attempts whose end is on record, once they are too old or take too much of the disk.

It works on a thread of its own, and only on attempts that are settled: nobody else writes there any more. A directory
gets another name before its files go, so that no daemon takes what is left of it for an attempt. The folder of the job
stays: its name says that the job's id was used. In it an empty file `<attempt>.deleted` says why there is no output.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from gantree.executors.local.run_limits import RunLimits, disk_bytes

EVERY_S = 600.0
_PRUNED = ".pruned-"
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own is

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SettledAttempt:
    """A directory that may be deleted, and when the end of the attempt was put on record."""

    path: Path
    settled_at: float


class RunPruner:
    """Prunes one directory of runs, now and then, until it is closed."""

    def __init__(self, runs: Path, limits: RunLimits) -> None:
        self._runs, self._limits = runs, limits
        self._bytes_of: dict[Path, int] = {}
        self._closing = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name="gantree-prune", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Begin nothing more; a directory that is being deleted is finished by the next daemon."""
        self._closing.set()

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                self.prune(time.time())
            except OSError:
                log.exception("old run directories could not be deleted")
            self._closing.wait(EVERY_S)

    def prune(self, now: float) -> None:
        """Delete what is too old, then the oldest while the rest takes too much. Raises OSError."""
        for path in self._runs.glob(f"*/{_PRUNED}*"):
            shutil.rmtree(path, ignore_errors=True)
        attempts = sorted(self._settled(), key=lambda each: each.settled_at)
        total = sum(self._size(each.path) for each in attempts)
        most = self._limits.most.of(disk_bytes(self._runs)) if attempts else 0
        for attempt in attempts:
            is_old = attempt.settled_at < now - self._limits.keep_s
            if self._closing.is_set() or not (is_old or total > most):
                return
            total -= self._bytes_of.pop(attempt.path)
            _delete(attempt.path)

    def _settled(self) -> Iterator[SettledAttempt]:
        for path in self._runs.glob("*/*/settled"):
            try:
                yield SettledAttempt(path.parent, path.stat().st_mtime)
            except FileNotFoundError:
                continue

    def _size(self, attempt: Path) -> int:
        """What an attempt takes of the disk: measured once, for nothing is written there any more."""
        if attempt not in self._bytes_of:
            files = (Path(folder) / name for folder, _, names in os.walk(attempt) for name in names)
            self._bytes_of[attempt] = sum(each.lstat().st_blocks * _BLOCK_BYTES for each in files)
        return self._bytes_of[attempt]


def _delete(attempt: Path) -> None:
    log.info("deleting the run directory %s", attempt)
    attempt.with_name(f"{attempt.name}.deleted").touch(mode=0o600)
    doomed = attempt.with_name(f"{_PRUNED}{attempt.name}")
    attempt.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
