"""A replica with a KV cache, in a process of its own: it answers completions of token ids and publishes what it stores.

Its ports are those that gantree gave it (PORT, GANTREE_CACHE_EVENTS_PORT, GANTREE_CACHE_REPLAY_PORT). The answer says
who answered, and how many tokens of the prompt were in the cache.
"""

import asyncio
import json
import os
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

from support.cache_publisher import BLOCK, CachePublisher, stored

NAME = f"{os.environ['GANTREE_SERVICE']}.{os.environ['GANTREE_REPLICA']}"


class Engine:
    """A cache without eviction."""

    def __init__(self, publisher: CachePublisher) -> None:
        self._publisher = publisher
        self._hash_of: dict[tuple[int, ...], int] = {(): 0}

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer the requests of a connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                _, _, rest = head.partition("content-length: ")
                body = await reader.readexactly(int(rest.split("\r\n")[0] or 0)) if rest else b""
                cached = await self._run(json.loads(body)["prompt"]) if body else 0
                content = json.dumps({"by": NAME, "cached_tokens": cached}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))  # fmt: skip
                await writer.drain()
        writer.close()

    async def _run(self, prompt: list[int]) -> int:
        cached = 0
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            before, whole = tuple(prompt[:start]), tuple(prompt[: start + BLOCK])
            if whole in self._hash_of:
                cached += BLOCK
                continue
            self._hash_of[whole] = len(self._hash_of)
            parent = self._hash_of[before] or None
            block = prompt[start : start + BLOCK]
            await self._publisher.publish(stored([self._hash_of[whole]], parent, block))
        return cached


async def main() -> None:
    """Serve until the process is ended."""
    ports = [int(os.environ[f"GANTREE_CACHE_{name}_PORT"]) for name in ("EVENTS", "REPLAY")]
    async with CachePublisher(port=ports[0], replay_port=ports[1]) as publisher:
        engine = Engine(publisher)
        server = await asyncio.start_server(engine.serve, "127.0.0.1", int(os.environ["PORT"]))
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
