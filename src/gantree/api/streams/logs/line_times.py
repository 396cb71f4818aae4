"""When the bytes of a rank's log were written, as the shim recorded it (`executors.local.shim.log_times`)."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gantree.executors.local.shim.log_times import MOST_RECORDS, RECORD

Records = list[tuple[int, float]]


def records_between(log: Path, start: int, end: int) -> Records:
    """The records of a log that say when its bytes [start, end) were written, in order; none where nothing is known.

    The first one beyond start and all up to the first one at or beyond end.
    """
    try:
        index = os.open(f"{log}.times", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        count = os.fstat(index).st_size // RECORD.size
        first = _first(index, count, lambda size, _: size > start)
        last = _first(index, count, lambda size, _: size >= end) + 1
        length = min(last - first, MOST_RECORDS) * RECORD.size
        found = os.pread(index, length, first * RECORD.size)
        return list(RECORD.iter_unpack(found[: len(found) // RECORD.size * RECORD.size]))
    finally:
        os.close(index)


def offset_at(log: Path, at: float) -> int:
    """How large a log was just before a moment, as far as it is known: what was written since is behind that.

    0 where there is no log.
    """
    try:
        stat = log.stat()
        index = os.open(f"{log}.times", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        with suppress(OSError):
            stat = log.stat()
            return stat.st_size if stat.st_mtime < at else 0
        return 0
    try:
        count = os.fstat(index).st_size // RECORD.size
        place = _first(index, count, lambda _, time: time >= at)
        if place == count and stat.st_mtime < at:
            return stat.st_size
        return _read(index, place - 1)[0] if place else 0
    finally:
        os.close(index)


def _first(index: int, count: int, holds: Callable[[int, float], bool]) -> int:
    """The number of the first record for which something holds, by bisection; count if it is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(*_read(index, middle)):
            high = middle
        else:
            low = middle + 1
    return low


def _read(index: int, place: int) -> tuple[int, float]:
    """One record; beyond all where the file has just been replaced by a shorter one."""
    found = os.pread(index, RECORD.size, place * RECORD.size)
    if len(found) < RECORD.size:
        return 1 << 62, float("inf")
    size, at = RECORD.unpack(found)
    return size, at
