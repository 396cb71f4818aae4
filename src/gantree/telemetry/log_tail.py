"""Reads what is appended to a log: to /dev/kmsg, to a file that may be rotated, or to a FIFO. It never waits.

What was there before the first reading is skipped, but for a FIFO. A file that was moved away is followed to its end
with the next line of the new one; a file that became shorter is read from its start. A line without its end is kept
until the end comes, within LONGEST_LINE.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

READ = 64 << 10
"""Bytes a read: a record of /dev/kmsg must fit whole, and has at most 8 KiB."""
MOST_AT_ONCE = 4 << 20
LONGEST_LINE = 16 << 10


class LogTail:
    """A log, from now on. Raises OSError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self._descriptor = self._open()
        if self._is_seekable():
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def lines(self) -> list[str]:
        """The lines that are new since the last call. Raises OSError where it cannot be read."""
        self._start_again_if_shorter()
        data = self._rest + b"".join(self._new())
        if self._was_moved():
            os.close(self._descriptor)
            self._descriptor = self._open()
            data = data + (b"\n" if data else b"") + b"".join(self._new())
        whole, _, rest = data.rpartition(b"\n")
        self._rest = rest[-LONGEST_LINE:]
        return whole.decode(errors="replace").splitlines()

    def close(self) -> None:
        """Read no more."""
        os.close(self._descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _is_seekable(self) -> bool:
        return not stat.S_ISFIFO(os.fstat(self._descriptor).st_mode)

    def _new(self) -> Iterator[bytes]:
        """Pieces until there is nothing more for now. Records that the kernel overwrote before are lost."""
        left = MOST_AT_ONCE
        while left > 0:
            try:
                piece = os.read(self._descriptor, READ)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                continue
            if not piece:
                return
            left -= len(piece)
            yield piece

    def _start_again_if_shorter(self) -> None:
        found = os.fstat(self._descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_size < os.lseek(
            self._descriptor, 0, os.SEEK_CUR
        ):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._rest = b""

    def _was_moved(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)
