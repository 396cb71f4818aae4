# ruff: noqa: PTH105, PTH116, PTH123 - as in `shim`: pathlib costs 10 ms of every start
"""Writes down when the log of each rank grew, so that readers can merge ranks by time.

Standard library only, nothing of gantree; `shim` loads it from the file beside it. A rank writes into its log directly,
so no line carries a time. Beside `rank-<r>.log` stands `rank-<r>.log.times`, records of RECORD (16 bytes): the size of
the log, and the moment by which it had that size, in seconds since 1970. A line was written by the time of the first
record beyond its first byte. What is beyond the last record was written by the time of the file's last change.

inotify raises SIGIO when a log grows. The first growth after silence is recorded at once, and further ones EVERY_S
later, for all that came meanwhile. Where inotify has no instance left (`fs.inotify.max_user_instances`), logs are
looked at as often as the shim wakes, every half second.

A file has at most MOST_RECORDS, 1 MiB. A full one is thinned to half: the newest NEWEST_KEPT stay, and the older ones
are spread evenly over their time, so the older part of a log of a week is exact to about half a minute.
"""

import ctypes
import fcntl
import os
import signal
import struct
import time
from collections.abc import Sequence
from typing import Any

RECORD = struct.Struct("<Qd")
EVERY_S = 0.02
MOST_RECORDS = 1 << 16
NEWEST_KEPT = 1 << 13
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK, IN_CLOEXEC
_IN_MODIFY = 2
_EVENTS_BYTES = 1 << 16
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def thinned(records: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """About half of many records: the newest, and older ones at even distances of time. The last of a group stays."""
    older, newest = records[:-NEWEST_KEPT], records[-NEWEST_KEPT:]
    if not older:
        return newest
    places = max(1, MOST_RECORDS // 2 - NEWEST_KEPT)
    distance = (older[-1][1] - older[0][1]) / places
    kept: list[tuple[int, float]] = []
    for index, record in enumerate(older):
        is_last = index + 1 == len(older)
        if is_last or older[index + 1][1] > older[0][1] + distance * (len(kept) + 1):
            kept.append(record)
    return (kept if len(kept) <= places + 1 else older[-1:]) + newest


class LogTimes:
    """The times of one member's logs."""

    def __init__(self, logs: Sequence[str]) -> None:
        self._logs = tuple(logs)
        self._size_of: dict[str, int] = {}
        self._inotify = -1

    def watch(self) -> None:
        """Have growth of the logs, which must be there, reported by SIGIO. Call it once, with SIGIO blocked."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = libc.inotify_init1(_NONBLOCK_CLOEXEC)
        if self._inotify < 0:
            return
        for log in self._logs:
            libc.inotify_add_watch(self._inotify, os.fsencode(log), _IN_MODIFY)
        fcntl.fcntl(self._inotify, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(self._inotify, fcntl.F_GETFL)
        fcntl.fcntl(self._inotify, fcntl.F_SETFL, flags | os.O_ASYNC)
        self.look()

    def wait(self, signals: Sequence[int], patience_s: float) -> Any:
        """As `signal.sigtimedwait`; growth of the logs is recorded meanwhile."""
        end_s = time.monotonic() + patience_s
        woken_by = None
        while woken_by is None and (left_s := end_s - time.monotonic()) >= 0:
            woken_by = signal.sigtimedwait((*signals, signal.SIGIO), left_s)
            if woken_by is not None and woken_by.si_signo == signal.SIGIO:
                self._drain()
                self.look()
                woken_by = signal.sigtimedwait(signals, min(EVERY_S, left_s))
            self.look()
        return woken_by

    def look(self) -> None:
        """Record which logs have grown. A full disk costs times, and nothing else."""
        for log in self._logs:
            try:
                self._look_at(log)
            except OSError:
                continue

    def _drain(self) -> None:
        try:
            while len(os.read(self._inotify, _EVENTS_BYTES)) * 2 > _EVENTS_BYTES:
                pass
        except OSError:  # nothing is left to read
            pass

    def _look_at(self, log: str) -> None:
        size, before = os.stat(log).st_size, self._size_of.get(log, 0)
        if size == before:
            return
        self._size_of[log] = size
        index = os.open(f"{log}.times", _APPEND | (os.O_TRUNC if size < before else 0), 0o600)
        try:
            at = os.fstat(index).st_size
            if os.write(index, RECORD.pack(size, time.time())) != RECORD.size:
                os.ftruncate(index, at)
        finally:
            os.close(index)
        if at >= (MOST_RECORDS - 1) * RECORD.size:
            self._thin(f"{log}.times")

    def _thin(self, path: str) -> None:
        with open(path, "rb") as file:
            records = list(RECORD.iter_unpack(file.read()))
        with open(f"{path}.new", "wb") as file:
            file.write(b"".join(RECORD.pack(*record) for record in thinned(records)))
        os.replace(f"{path}.new", path)
