"""The Unix socket at which `haproxy/router.lua` asks which replicas hold a prompt: one connection for each request.

In: a line of the backend and the number of bytes, then the body of the request. Out: a line of servers, each with the
tokens that it holds, or `unknown`. HAProxy waits for it for a few milliseconds and goes on without.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from gantree.routing.cache_events.match import Match
from gantree.routing.haproxy.config import CACHE_SOCKET

log = logging.getLogger(__name__)
LARGEST_BODY = 8 << 20
UNKNOWN = "unknown"
Ask = Callable[[str, bytes], Awaitable[Match | None]]


async def open_lookups(directory: Path, ask: Ask) -> asyncio.Server:
    """Answer by `ask`, of a backend and a body, from now on."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, EOFError, ValueError):
            backend, length = (await reader.readline()).decode().split()
            body = await reader.readexactly(min(int(length), LARGEST_BODY))
            writer.write(f"{_line(await ask(backend, body))}\n".encode())
            await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, directory / CACHE_SOCKET)


def _line(match: Match | None) -> str:
    if match is None:
        return UNKNOWN
    return " ".join(f"{server} {tokens}" for server, tokens in match.tokens_of_server.items())
