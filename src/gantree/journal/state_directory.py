"""A state directory that one process holds: taken by a lock, and checked to be there still before anything is promised.

`journal.lock` is held with flock(2), and the kernel lets go of it however the process ends. A lock on a file says
nothing of its name, though: whoever deletes the directory and makes it anew finds a lock that nobody holds. So the path
is claimed too, by an abstract Unix socket (see unix(7)) that no deletion reaches, and the directory, the lock and the
files in use are known by their inodes.
"""

import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from gantree.model.errors import JournalError

LOCK = "journal.lock"
LEFT_BY_THE_DEAD_S = 1.0
"""Seconds to wait for a lock that another program than a daemon holds."""
ROOM_FILE = ".room"
ROOM_BYTES = 256 * 1024
"""What a turn may need at once: with less on the disk, the next one may fail."""
_CREDENTIALS = struct.Struct("3i")


class StateDirectory:
    """A directory that this process holds until `close`; it is made (mode 0700) where it is missing."""

    def __init__(self, path: Path) -> None:
        """Raises JournalError where another process holds it, or nothing can be written there."""
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _take_lock(path / LOCK)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise JournalError(f"{path} cannot be a state directory: {reason}") from error
        try:
            self._claim = _claim(path)
        except BaseException:
            os.close(self._lock)
            raise
        self._known = {each: _inode(each) for each in (path, path / LOCK)}

    def keep(self, file: Path) -> None:
        """From now on this file must stay there, too."""
        self._known[file] = _inode(file)

    def check(self) -> None:
        """Raise JournalError once the directory or a file is gone, or another has its place."""
        for path, known in self._known.items():
            try:
                found: tuple[int, int] | None = _inode(path)
            except (FileNotFoundError, NotADirectoryError):
                found = None
            if found != known:
                raise JournalError(self._lost(path, is_gone=found is None))

    def check_room(self) -> None:
        """Raise OSError where the disk has no room for a turn."""
        probe = self.path / ROOM_FILE
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(probe, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, ROOM_BYTES)
        finally:
            os.close(descriptor)
            probe.unlink()

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._lock)
        if self._claim is not None:
            self._claim.close()

    def _lost(self, path: Path, *, is_gone: bool) -> str:
        what = "was deleted or moved" if is_gone else "was replaced by another"
        way_out = "stop this daemon, restore the directory from a backup and start again"
        return f"{path} {what} while the daemon (process {os.getpid()}) uses it, so nothing can be recorded: {way_out}"


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _take_lock(path: Path) -> int:
    """Hold the lock file for this process. The number in it is for the other's error message only."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for(lambda: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB), BlockingIOError)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise JournalError(
            f"{path.parent} is in use by another daemon (process {holder}); stop it first, or use another directory"
        ) from error
    except OSError:
        os.close(lock)
        raise
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _wait_for(take: Callable[[], object], taken: type[OSError]) -> None:
    """Take what another process may hold. Raises `taken` where it does for longer than a dead daemon's last child.

    A daemon that is killed while it starts a process leaves what it holds to that one, until it has become its command.
    """
    deadline_s = time.monotonic() + LEFT_BY_THE_DEAD_S
    while True:
        try:
            take()
        except taken:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)
        else:
            return


def _claim(path: Path) -> socket.socket | None:
    """Claim the path. None where another user has its name, whose claim counts for nothing.

    Raises JournalError where a daemon of ours does: its directory was deleted, for its lock is free.
    """
    name = "\0gantree/" + sha256(os.fsencode(path.resolve())).hexdigest()
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _wait_for(lambda: claim.bind(name), OSError)
        claim.listen(1)
    except OSError:
        claim.close()
        pid, uid = _holder(name)
        if uid != os.geteuid():
            return None
        raise JournalError(
            f"{path} was deleted or moved while a daemon (process {pid}) used it, and that one still runs: stop it"
            " first, and restore the directory from a backup if its jobs matter"
        ) from None
    return claim


def _holder(name: str) -> tuple[int, int]:
    """Process and user of a claim; -1 where there is none any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(name)
        except OSError:
            return -1, -1
        packed = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(packed)
    return pid, uid
