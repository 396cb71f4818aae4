"""The Unix socket at which `haproxy/router.lua` asks which replicas hold a prompt: one connection for each request.

In: a line of the backend, the number of bytes, and of earlier answers their number and the server that was chosen; then
the body of the request. Out: a line of the number of the answer, and servers, each with the tokens that it holds; or
`unknown`. HAProxy waits for it for a few milliseconds and goes on without.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol

from gantree.routing.cache_events.match import Match
from gantree.routing.haproxy.config import CACHE_SOCKET

LARGEST_BODY = 8 << 20
LONGEST_LINE = 1 << 20
MOST_ANSWERS = 512
"""Of which it is remembered what they were about: 0.1 MB of a long prompt."""
UNKNOWN = "unknown"


class Lookups(Protocol):
    """What answers."""

    async def match(self, backend: str, body: bytes) -> Match | None:
        """How much of the prompt of a request each replica holds; None where that is not known."""
        ...

    def expect(self, backend: str, server: str, match: Match) -> None:
        """A prompt was sent to a replica."""
        ...


async def open_lookups(directory: Path, lookups: Lookups) -> asyncio.Server:
    """Answer from now on."""
    answers = _Answers(lookups)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, EOFError, ValueError):
            backend, length, *chosen = (await reader.readline()).decode().split()
            answers.note(iter(chosen))
            body = await reader.readexactly(min(int(length), LARGEST_BODY))
            writer.write(f"{await answers.line(backend, body)}\n".encode())
            await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, directory / CACHE_SOCKET, limit=LONGEST_LINE)


class _Answers:
    """The last answers, by their number."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._numbers = count(1)
        self._matches: OrderedDict[str, tuple[str, Match]] = OrderedDict()

    def note(self, chosen: Iterator[str]) -> None:
        """Note what was chosen after earlier answers: their number and a server, by turns."""
        for number, server in zip(chosen, chosen, strict=False):
            if number in self._matches:
                backend, match = self._matches.pop(number)
                self._lookups.expect(backend, server, match)

    async def line(self, backend: str, body: bytes) -> str:
        """The answer to a request."""
        match = await self._lookups.match(backend, body)
        if match is None:
            return UNKNOWN
        number = str(next(self._numbers))
        self._matches[number] = (backend, match)
        if len(self._matches) > MOST_ANSWERS:
            self._matches.popitem(last=False)
        return " ".join(
            [number, *(f"{key} {value}" for key, value in match.tokens_of_server.items())]
        )
