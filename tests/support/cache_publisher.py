"""A publisher of cache events, as of an engine: numbered batches at one port, and the last ones again at another."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio

END = (-1).to_bytes(8, "big", signed=True)
BLOCK = 4


def stored(hashes: Sequence[int], parent: int | None, tokens: Sequence[int]) -> dict[str, Any]:
    """A row of the event that blocks of BLOCK tokens were stored."""
    row = {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent}
    return {**row, "token_ids": list(tokens), "block_size": BLOCK, "lora_id": None}


def removed(hashes: Sequence[int]) -> dict[str, Any]:
    """A row of the event that blocks were removed."""
    return {"type": "BlockRemoved", "block_hashes": list(hashes)}


class CachePublisher:
    """async with CachePublisher(replay=True) as publisher: await publisher.publish(stored([1], None, [1, 2, 3, 4]))"""

    def __init__(
        self, *, replay: bool = True, kept: int = 1000, port: int = 0, replay_port: int = 0
    ) -> None:
        self.port, self.replay_port = port, replay_port
        self._with_replay, self._kept = replay, deque[tuple[int, bytes]](maxlen=kept)
        self._context = zmq.asyncio.Context()
        self.number, self.time = 0, 0.0

    async def __aenter__(self) -> Self:
        self._out = self._context.socket(zmq.XPUB)
        self._out.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.port = self._bound(self._out, self.port)
        self._answering: asyncio.Task[None] | None = None
        if self._with_replay:
            self._again = self._context.socket(zmq.ROUTER)
            self.replay_port = self._bound(self._again, self.replay_port)
            self._answering = asyncio.create_task(self._answer())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._answering is not None:
            self._answering.cancel()
            with suppress(asyncio.CancelledError):
                await self._answering
        self._context.destroy(linger=0)

    async def subscribed(self) -> None:
        """Wait until somebody has subscribed: what was published before is lost on them."""
        assert await self._out.recv() == b"\x01"

    async def publish(self, *rows: Mapping[str, Any]) -> None:
        """Publish a batch."""
        number, payload = self._batch(rows)
        await self._out.send_multipart([b"topic", number.to_bytes(8, "big"), payload])

    def lose(self, *rows: Mapping[str, Any]) -> None:
        """Make a batch that no subscriber gets."""
        self._batch(rows)

    def start_again(self, time: float) -> None:
        """As an engine that has started again at the same ports."""
        self._kept.clear()
        self.number, self.time = 0, time

    async def send(self, *frames: bytes) -> None:
        """Send these frames."""
        await self._out.send_multipart(list(frames))

    def _batch(self, rows: Sequence[Mapping[str, Any]]) -> tuple[int, bytes]:
        number, self.number, self.time = self.number, self.number + 1, self.time + 1
        payload = msgspec.msgpack.encode([self.time, list(rows), 0])
        self._kept.append((number, payload))
        return number, payload

    @staticmethod
    def _bound(socket: Any, port: int) -> int:
        if port:
            socket.bind(f"tcp://127.0.0.1:{port}")
            return port
        return int(socket.bind_to_random_port("tcp://127.0.0.1"))

    async def _answer(self) -> None:
        while True:
            client, _, first = await self._again.recv_multipart()
            for number, payload in list(self._kept):
                if number >= int.from_bytes(first, "big"):
                    frames = [client, b"", number.to_bytes(8, "big"), payload]
                    await self._again.send_multipart(frames)
            await self._again.send_multipart([client, b"", END, b""])
