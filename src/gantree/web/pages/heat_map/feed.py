"""The stream of heat map changes: one read of the ledger a second at most, shared by all browsers.

Frames are server-sent events: "whole" first, and again whenever the cluster is another one; "delta" for what is other
than in the frame before; "use" for how busy GPUs say that they are, where they are asked. They are squeezed as they go,
since most of a scene repeats itself.
"""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator

from gantree.api.access.access import Caller
from gantree.api.backend import QueryBackend
from gantree.api.streams.streaming import AGAIN_EVERY_S, StreamAuthorization
from gantree.control.engine.loop import wait_until_set
from gantree.control.requests.read_view import ReadView
from gantree.web.pages.heat_map.layout import Json, heat_map, heat_map_json
from gantree.web.pages.heat_map.messages import (
    UseRows,
    changed_use,
    compact,
    delta_json,
    use_rows,
    whole_json,
)
from gantree.web.pages.heat_map.scene import HeatScene, heat_scene
from gantree.web.pages.visibility import MayRead, visible_jobs

EVERY_S = 1.0
HEARTBEAT_S = AGAIN_EVERY_S
COUNTED_EVERY_S = 2.0
"""Seconds between two readings of the GPU counters, which announce no changes."""
HEARTBEAT = "event: beat\ndata: \n\n"
GZIP_BITS = 31
LEVEL = 5
LARGE = 50_000
"""Characters from which on a frame is compressed on another thread."""


def latest_scene(view: ReadView, known: int) -> tuple[int, HeatScene | None] | None:
    """Return (seq of the newest fact, scene after it); None if that seq is known."""
    if view.at.seq == known:
        return None
    return view.at.seq, heat_scene(view.ledger, view.now)


def latest_map(view: ReadView) -> Json | None:
    """Return the map as JSON; None before a cluster was observed."""
    fabric = view.ledger.fabric
    return None if fabric is None else heat_map_json(heat_map(fabric))


class HeatFeed:
    """The newest scene, and the streams that wait for the next one."""

    def __init__(self, reads: QueryBackend) -> None:
        self._reads = reads
        self._counters = reads.gpu_counters
        self._lock = asyncio.Lock()
        self._making = asyncio.Lock()
        self._made: dict[
            bool, tuple[HeatScene | None, HeatScene, str]
        ] = {}  # the newest whole and delta
        self._changed = asyncio.Event()
        self._seq = -1
        self._scene: HeatScene | None = None
        self._looked_at = 0.0

    async def scene(self, at_most_s_old: float = 0.0) -> HeatScene | None:
        """Return the newest scene, or one that is at most so many seconds old; None without a cluster."""
        async with self._lock:
            if time.monotonic() - self._looked_at > at_most_s_old or self._seq < 0:
                self._changed = self._reads.ticket()
                found = await self._reads.read(latest_scene, self._seq)
                self._looked_at = time.monotonic()
                if found is not None:
                    self._seq, self._scene = found
        return self._scene

    async def frames(self, stream: StreamAuthorization) -> AsyncIterator[str]:
        """Yield the frames of one browser, until the daemon stops."""
        shown, caller = None, stream.caller
        use: UseRows = {}
        while not self._reads.stopping:
            if stream.caller != caller:  # who may see other jobs now is shown all anew
                shown, caller = None, stream.caller
            scene = await self.scene(EVERY_S if shown is None else EVERY_S / 2)
            changed = self._changed  # since it was looked at, be it by somebody else
            if scene is not None and scene is not shown:
                text = await self._frame(shown, scene, caller)
                if shown is None or shown.map_id != scene.map_id:
                    use = {}
                shown = scene
                if text:
                    yield text
            is_counted = scene is not None and self._counters.covers(scene.names)
            if scene is not None and is_counted:
                self._counters.refresh(scene.names)
                rows = use_rows(scene, self._counters.use_of_node, visible_jobs(caller))
                frame, use = changed_use(use, rows), rows
                if frame is not None:
                    yield f"event: use\ndata: {compact(frame)}\n\n"
            await asyncio.sleep(EVERY_S)
            pause_s = COUNTED_EVERY_S if is_counted else HEARTBEAT_S
            if not await wait_until_set(changed, pause_s):
                yield HEARTBEAT

    async def _frame(self, shown: HeatScene | None, scene: HeatScene, caller: Caller) -> str:
        """Return a frame; callers that may read all jobs share one."""
        if not caller.sees_all:
            return await asyncio.to_thread(_frame, shown, scene, visible_jobs(caller))
        async with self._making:
            made = self._made.get(shown is None)
            if made is None or made[0] is not shown or made[1] is not scene:
                text = await asyncio.to_thread(_frame, shown, scene, visible_jobs(caller))
                made = self._made[shown is None] = shown, scene, text
        return made[2]


def _frame(shown: HeatScene | None, scene: HeatScene, may_read: MayRead) -> str:
    if shown is None or shown.map_id != scene.map_id:
        return f"event: whole\ndata: {compact(whole_json(scene, may_read))}\n\n"
    delta = delta_json(shown, scene, may_read)
    return "" if delta is None else f"event: delta\ndata: {compact(delta)}\n\n"


async def gzipped(frames: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Compress frames into one gzip stream, flushed after each frame."""
    squeeze = zlib.compressobj(LEVEL, wbits=GZIP_BITS)
    async for frame in frames:
        if len(frame) < LARGE:
            yield _squeezed(squeeze, frame)
        else:
            yield await asyncio.to_thread(_squeezed, squeeze, frame)
    yield squeeze.flush()


def _squeezed(squeeze: "zlib._Compress", frame: str) -> bytes:
    return squeeze.compress(frame.encode()) + squeeze.flush(zlib.Z_SYNC_FLUSH)


async def plain(frames: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Encode frames for a browser that accepts no gzip."""
    async for frame in frames:
        yield frame.encode()
