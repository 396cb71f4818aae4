"""The port at which the ranks of a gang meet."""

import errno
import socket
import zlib
from collections.abc import Collection

_PORTS = range(20_000, 30_000)
"""Below the range from which Linux gives out ports for outgoing connections (32768-60999), so that no
connection of another rank takes the port between this check and the bind of the first member."""


def free_port(job: str, attempt: int, taken: Collection[int]) -> int:
    """Return a free port; the search starts at a number that differs between attempts. Raises OSError."""
    first = zlib.crc32(f"{job}/{attempt}".encode())
    for offset in range(len(_PORTS)):
        port = _PORTS[(first + offset) % len(_PORTS)]
        if port not in taken and _can_bind(port):
            return port
    raise OSError(errno.EADDRINUSE, f"no free port between {_PORTS.start} and {_PORTS.stop - 1}")


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True
