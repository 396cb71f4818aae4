"""The Unix socket in the state directory: where it is, how to listen on it, how to connect to it.

Standard library only: server and client both import it. A socket's address holds 107 bytes; a longer path is
reached through /proc/self/fd of its directory.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gantree.model.errors import Conflict

FILE = "gantree.sock"
LONGEST_ADDRESS = 107
BACKLOG = 256


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


def listen(state_dir: Path) -> socket.socket:
    """A listening socket, mode 0600 from its first moment on.

    Whoever holds the lock of the state directory's journal is the only daemon there, so a socket that is found
    is a dead one's and is removed. Raises Conflict if something else is in its place.
    """
    remove(state_dir)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
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
