# ruff: noqa: PTH108, PTH116, PTH120 - as in `shim`: pathlib costs 10 ms of every start
"""Keeps the log of each rank below a cap: the middle is dropped, the first and the last part stay.

Standard library only, nothing of gantree but `shim`, which loads it from the file beside it. A rank writes into its log
directly, with O_APPEND. Where the log has grown beyond its cap, a hole is punched into it: the bytes no longer take
room on the disk, and every other byte keeps its offset, so ranks write on and readers read on. What was dropped stands
in `rank-<r>.log.gap`, `{"start": ..., "end": ...}`, which is written before the hole is punched: a reader that looks
there after it has read never takes the zeros of a hole for output.

Where less than `keep_free_bytes` of the disk are free, logs that grow are cut to half at each look, to no less than
LEAST_BYTES: the journal needs the room.
"""

import ctypes
import errno
import os
from collections.abc import Callable
from typing import Any

BLOCK_BYTES = 4096
LEAST_BYTES = 1 << 20
HASTY_SHARE = 16
"""A log that grew by this part of its cap since the last look is looked at again at once."""
_PUNCH_HOLE = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, <linux/falloc.h>

Gap = tuple[int, int]


def cut(size: int, gap: Gap | None, target: int) -> Gap:
    """What to drop of a log so that about target bytes stay: a quarter of it at the start, half at the end."""
    start = target // 4 // BLOCK_BYTES * BLOCK_BYTES
    end = max(0, size - target // 2) // BLOCK_BYTES * BLOCK_BYTES
    return (start, end) if gap is None else (min(start, gap[0]), max(end, gap[1]))


class LogCap:
    """The logs of one member's ranks. limits is `logs` of `launch.json`; None: of an older daemon, without a cap."""

    def __init__(
        self,
        logs: list[str],
        limits: dict[str, int] | None,
        read_json: Callable[[str], Any],
        write_json: Callable[[str, Any], None],
    ) -> None:
        self._logs = logs if limits else []
        self._cap_bytes = limits["cap_bytes"] if limits else 0
        self._keep_free_bytes = limits["keep_free_bytes"] if limits else 0
        self._read_json, self._write_json = read_json, write_json
        self._size_of: dict[str, int] = {}
        self._complaints: set[str] = set()

    def look(self) -> bool:
        """Cut what is too large; True if a log grows so fast that the next look must come at once.

        What cannot be cut is worth no gang: it is said once on standard error, the log of the shim.
        """
        grown = 0
        for log in self._logs:
            try:
                grown = max(grown, self._look_at(log))
            except OSError as error:
                if str(error) not in self._complaints:
                    self._complaints.add(str(error))
                    os.write(
                        2, f"{log} is not kept below its cap: {error}\n".encode(errors="replace")
                    )
        return grown > self._cap_bytes // HASTY_SHARE

    def _look_at(self, log: str) -> int:
        """Cut one log if it is too large, and give the bytes by which it has grown. Raises OSError."""
        try:
            size = os.stat(log).st_size
        except FileNotFoundError:
            return 0
        before = self._size_of.get(log, 0)
        if size != before:
            self._size_of[log] = size
            self._trim(log, size)
        return size - before

    def _trim(self, log: str, size: int) -> None:
        found = self._read_json(f"{log}.gap")
        gap = None if found is None else (int(found["start"]), int(found["end"]))
        if gap is not None and size < gap[1]:  # the job has cut its log itself
            os.unlink(f"{log}.gap")
            gap = None
        kept = size if gap is None else size - (gap[1] - gap[0])
        is_short = kept > LEAST_BYTES and self._is_disk_short(log)
        target = min(self._cap_bytes, max(LEAST_BYTES, kept // 2)) if is_short else self._cap_bytes
        if kept > target:
            self._drop(log, cut(size, gap, target))

    def _drop(self, log: str, gap: Gap) -> None:
        """Write the gap down and punch the hole; a full disk has no room for the first before the second."""
        record = {"start": gap[0], "end": gap[1]}
        try:
            self._write_json(f"{log}.gap", record)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _punch(log, *gap)
            self._write_json(f"{log}.gap", record)
        else:
            _punch(log, *gap)

    def _is_disk_short(self, log: str) -> bool:
        disk = os.statvfs(os.path.dirname(log))
        return disk.f_bavail * disk.f_frsize < self._keep_free_bytes


def _punch(log: str, start: int, end: int) -> None:
    """Give the room of these bytes back. Raises OSError, also where the file system cannot do it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        offset, length = ctypes.c_int64(start), ctypes.c_int64(end - start)
        if libc.fallocate(descriptor, _PUNCH_HOLE, offset, length) != 0:
            raise OSError(ctypes.get_errno(), "a hole could not be punched", log)
    finally:
        os.close(descriptor)
