"""The scenes of the heat map as they change, for any number of browsers: looked at once for all, at most once a second.

Frames are server-sent events: "whole" first, and again whenever the cluster is another one; "delta" for what is other
than in the frame before. They are squeezed as they go, since most of a scene repeats itself.
"""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator

from gantree.api.backend import Backend
from gantree.control.loop import wait_until_set
from gantree.control.reading import Reading
from gantree.web.pages.heat_layout import Json, heat_map, heat_map_json
from gantree.web.pages.heat_scene import HeatScene, heat_scene
from gantree.web.pages.heat_words import compact, delta_json, whole_json
from gantree.web.pages.sight import MayRead

EVERY_S = 1.0
HEARTBEAT_S = 15.0
HEARTBEAT = ": nothing new\n\n"
GZIP_BITS = 31
LEVEL = 5


def scene_asked(reading: Reading, known: int) -> tuple[int, HeatScene | None] | None:
    """The seq of the newest fact, and the scene after it; None where it is the one that is known."""
    if reading.at.seq == known:
        return None
    return reading.at.seq, heat_scene(reading.ledger, reading.now)


def map_asked(reading: Reading) -> Json | None:
    """Where everything is drawn; None before a cluster was observed."""
    fabric = reading.ledger.fabric
    return None if fabric is None else heat_map_json(heat_map(fabric))


class HeatFeed:
    """The newest scene, and who waits for the next."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = asyncio.Lock()
        self._seq = -1
        self._scene: HeatScene | None = None
        self._looked_at = 0.0

    async def scene(self, at_most_s_old: float = 0.0) -> HeatScene | None:
        """The newest scene, or one that was looked at so many seconds ago at most; None without a cluster."""
        async with self._lock:
            if time.monotonic() - self._looked_at > at_most_s_old or self._seq < 0:
                found = await self._backend.read(scene_asked, self._seq)
                self._looked_at = time.monotonic()
                if found is not None:
                    self._seq, self._scene = found
        return self._scene

    async def frames(self, may_read: MayRead) -> AsyncIterator[str]:
        """What a browser needs to be shown, for ever."""
        loop, shown = self._backend.loop, None
        while not loop.stopping:
            ticket = loop.changes.ticket()
            scene = await self.scene(0.0 if shown is None else EVERY_S / 2)
            if scene is not None and scene is not shown:
                text = _frame(shown, scene, may_read)
                shown = scene
                if text:
                    yield text
            await asyncio.sleep(EVERY_S)
            if not await wait_until_set(ticket, HEARTBEAT_S):
                yield HEARTBEAT


def _frame(shown: HeatScene | None, scene: HeatScene, may_read: MayRead) -> str:
    if shown is None or shown.map_id != scene.map_id:
        return f"event: whole\ndata: {compact(whole_json(scene, may_read))}\n\n"
    delta = delta_json(shown, scene, may_read)
    return "" if delta is None else f"event: delta\ndata: {compact(delta)}\n\n"


async def squeezed(frames: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Frames as one gzip stream, each complete as soon as it is sent."""
    squeeze = zlib.compressobj(LEVEL, wbits=GZIP_BITS)
    async for frame in frames:
        yield squeeze.compress(frame.encode()) + squeeze.flush(zlib.Z_SYNC_FLUSH)
    yield squeeze.flush()


async def plain(frames: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Frames for a browser that takes nothing squeezed."""
    async for frame in frames:
        yield frame.encode()
