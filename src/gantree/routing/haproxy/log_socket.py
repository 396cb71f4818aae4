"""The socket to which HAProxy writes a line for each request that has ended: a stream, so many lines come at once.

HAProxy keeps lines in a ring while nobody reads; it connects again by itself.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

NAME = "log.sock"


class _Lines(asyncio.Protocol):
    def __init__(self, read: Callable[[str], None]) -> None:
        self._read = read
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._read(line.decode(errors="replace"))


async def open_log(directory: Path, read: Callable[[str], None]) -> asyncio.Server:
    """Call read with each line from now on."""
    loop = asyncio.get_running_loop()
    return await loop.create_unix_server(lambda: _Lines(read), directory / NAME)
