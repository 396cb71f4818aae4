"""Follows the cache events of one replica over ZeroMQ, without a gap, or from the beginning again.

A publisher numbers its batches from 0 (frames: topic, number, batch). It may keep the last ones, and sends those from a
number on to who asks for them at a second port (vLLM's `replay_endpoint`); the last frame of that is empty, with the
number -1. So a router that starts late, or has missed some, has what it needs; without, it forgets what it knew of the
replica and learns anew. ZeroMQ connects again by itself.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import zmq
import zmq.asyncio

from gantree.routing.cache_events.blocks import ReplicaBlocks
from gantree.routing.cache_events.wire import Batch, batch_of

log = logging.getLogger(__name__)
MOST_WAITING = 100_000
"""Batches that wait here, as many as a publisher keeps by default."""
LARGEST_BATCH = 64 << 20
REPLAY_WITHIN_S = 5.0
END = (-1).to_bytes(8, "big", signed=True)


@dataclass(frozen=True, slots=True)
class Publisher:
    """Where a replica publishes. replay_port 0: nothing is sent again."""

    host: str
    port: int
    replay_port: int = 0

    def address(self, port: int) -> str:
        """An address as ZeroMQ writes it."""
        return f"tcp://[{self.host}]:{port}" if ":" in self.host else f"tcp://{self.host}:{port}"


class Subscriber:
    """Keeps the blocks of one replica. gap is called when events were lost."""

    def __init__(self, name: str, publisher: Publisher, gap: Callable[[], None]) -> None:
        self.blocks = ReplicaBlocks()
        self.is_heard = False
        self._name, self._publisher, self._gap = name, publisher, gap
        self._next = 0
        self._published_s = float("-inf")

    async def run(self, context: "zmq.asyncio.Context") -> None:
        """Follow for ever."""
        with context.socket(zmq.SUB) as socket:
            socket.set_hwm(MOST_WAITING)
            socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_BATCH)
            socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.LINGER, 0)
            socket.subscribe(b"")
            socket.connect(self._publisher.address(self._publisher.port))
            await self._catch_up(context)
            while True:
                frames = await socket.recv_multipart()
                if len(frames) != 3 or len(frames[1]) != 8:
                    log.warning("%s: found no cache events, but %d frames", self._name, len(frames))
                    continue
                await self.take(int.from_bytes(frames[1], "big"), frames[2], context)
                await asyncio.sleep(0)

    async def take(self, number: int, payload: bytes, context: "zmq.asyncio.Context") -> None:
        """Take a batch, after those that were missed before it."""
        batch = self._read(payload)
        if batch is None:
            return
        if number < self._next:
            if batch.published_s <= self._published_s:
                return  # it was in a replay already
            log.info("%s: the engine has started again; its cache is empty", self._name)
            self._forget()
            self._next = 0
        if number > self._next:
            await self._catch_up(context)
        if number < self._next:
            return
        if number > self._next:
            if self.is_heard:
                log.warning("%s: cache events were lost; what it holds is learned anew", self._name)
                self._gap()
            self._forget()
        self._apply(number, batch)

    async def _catch_up(self, context: "zmq.asyncio.Context") -> None:
        """Ask for the batches from the next one on, as far as there are any."""
        if not self._publisher.replay_port:
            return
        try:
            async with asyncio.timeout(REPLAY_WITHIN_S):
                async for number, payload in self._replayed(context):
                    batch = self._read(payload)
                    if batch is not None and number >= self._next:
                        if number > self._next and len(self.blocks):
                            self._forget()
                            self._gap()
                        self._apply(number, batch)
                    await asyncio.sleep(0)  # what has come already would keep others waiting
        except TimeoutError:
            log.debug("%s: no replay of cache events", self._name)

    async def _replayed(self, context: "zmq.asyncio.Context") -> AsyncIterator[tuple[int, bytes]]:
        with context.socket(zmq.DEALER) as socket:
            socket.set_hwm(MOST_WAITING)
            socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_BATCH)
            socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._publisher.address(self._publisher.replay_port))
            await socket.send_multipart([b"", self._next.to_bytes(8, "big")])
            while True:
                frames = await socket.recv_multipart()
                if len(frames) < 2 or frames[-2] == END:
                    return
                yield int.from_bytes(frames[-2], "big"), frames[-1]

    def _apply(self, number: int, batch: Batch) -> None:
        for event in batch.events:
            self.blocks.apply(event)
        self._next, self._published_s = number + 1, batch.published_s
        if not self.is_heard:
            log.info("%s: its cache events are read", self._name)
        self.is_heard = True

    def _forget(self) -> None:
        self.blocks.clear()

    def _read(self, payload: bytes) -> Batch | None:
        try:
            return batch_of(payload)
        except ValueError as error:
            log.warning("%s: %s", self._name, error)
            return None
