"""The Unix socket in the state directory: where it is, how to listen on it, how to connect to it.

Standard library only: server and client both import it. A socket's address holds 107 bytes; a longer path is
reached through /proc/self/fd of its directory.
"""

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gantree.journal.state_directory import LOCK
from gantree.model.errors import Conflict, JournalError

FILE = "gantree.sock"
DAEMONS = "daemons.lock"
LONGEST_ADDRESS = 107
BACKLOG = 2048


@contextmanager
def address(state_dir: Path) -> Iterator[str]:
    """The socket's address as the system takes it, good as long as the block lasts."""
    path = os.fspath(state_dir / FILE)
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield path
        return
    directory = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{FILE}"
    finally:
        os.close(directory)


def listen(state_dir: Path, *, for_all: bool = False) -> socket.socket:
    """A listening socket, mode 0600 from its first moment on; for_all: every user of the machine may connect.

    Whoever leads is the only one to listen here, so a socket that is found is that of a daemon that is dead or leads no
    more, and is removed. Raises Conflict if something else is in its place.
    """
    remove(state_dir)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o111 if for_all else 0o177)
    try:
        with address(state_dir) as at:
            listener.bind(at)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


@contextmanager
def present(state_dir: Path) -> Iterator[None]:
    """As long as the block lasts, a daemon is there that may come to lead. Raises JournalError."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(state_dir / DAEMONS, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise JournalError(f"{state_dir} cannot be a state directory: {reason}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def is_anybody_present(state_dir: Path) -> bool:
    """Whether a daemon lives that leads, or may come to."""
    try:
        with (state_dir / DAEMONS).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def inode(state_dir: Path) -> tuple[int, int] | None:
    """Which socket is there now; None: none."""
    try:
        found = (state_dir / FILE).lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def starting_daemon(state_dir: Path) -> str | None:
    """The process that holds the directory's journal, as a daemon does before it listens; None: nobody holds it."""
    try:
        with (state_dir / LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(32).decode(errors="replace").strip() or "unknown"
    except OSError:
        return None
    return None


def remove_own(state_dir: Path, own: tuple[int, int] | None) -> None:
    """Remove the socket of this inode; one that another daemon listens on by now stays."""
    if own is not None and inode(state_dir) == own:
        remove(state_dir)


def remove(state_dir: Path) -> None:
    """Remove the socket, if there is one. Raises Conflict if it is no socket."""
    path = state_dir / FILE
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Conflict(f"{path} is in the way: it is no socket")
    path.unlink()


def connect(state_dir: Path, timeout_s: float | None) -> socket.socket:
    """A connection to the daemon. Raises OSError if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with address(state_dir) as at:
            connection.connect(at)
    except BaseException:
        connection.close()
        raise
    return connection
