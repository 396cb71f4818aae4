"""The feed of new facts for any number of listeners: read and encoded once for all of them.

A listener who comes late, or reads slowly, reads pages of the journal until it has caught up with what is kept here.
Frames are server-sent events: the id is the fact's seq, so a client that comes back says where it stopped.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gantree.api.access.access import Caller
from gantree.api.access.visibility import facts_visible_to
from gantree.api.backend import QueryBackend
from gantree.api.streams.streaming import AGAIN_EVERY_S, StreamAuthorization
from gantree.api.views import job_view
from gantree.control.engine.loop import RETRY_S, Changes, wait_until_set
from gantree.control.requests.read_view import ReadView
from gantree.journal.contract import RecordedFact
from gantree.model.errors import Conflict, GantreeError

Json = dict[str, Any]
KEPT = 4096
"""Frames that are kept for listeners."""
AT_ONCE = 500
HEARTBEAT_S = AGAIN_EVERY_S
HEARTBEAT = b": nothing new\n\n"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Frame:
    """One fact as it goes over the wire, and the job that it is about."""

    seq: int
    job: str | None
    text: bytes


class EventFeed:
    """Reads new facts as long as there are listeners."""

    def __init__(self, backend: QueryBackend) -> None:
        self._backend = backend
        self._kept: deque[Frame] = deque(maxlen=KEPT)
        self._read_to = 0
        self._news = Changes()
        self._listeners = 0
        self._reading: asyncio.Task[None] | None = None

    async def place(self, after: int | None) -> int:
        """Where a listener begins: after the seq it names, else after all there is.

        Raises Conflict for one whose next facts are there no more, or were never.
        """
        first, last = await self._backend.read_inline(bounds)
        if after is None:
            return last
        if after < first:
            raise Conflict(
                f"facts up to {first} were compacted; look at everything anew, then listen"
            )
        if after > last:
            raise Conflict(f"the newest fact is {last}, not {after}: this is another journal")
        return after

    async def frames(
        self, after: int, job: str | None, stream: StreamAuthorization
    ) -> AsyncIterator[bytes]:
        """What follows a place, for ever, with a sign of life where there is nothing; of one job where it is named.

        Whoever may not read everything is told what he may; that is found out for each listener.
        """
        self._listeners += 1
        try:
            self._begin(after)
            while not self._backend.stopping:
                ticket = self._news.ticket()
                found = await self._after(after)
                if found:
                    after = found[-1].seq
                    text = await self._text(found, job, stream.caller)
                    if text:
                        yield text
                elif not await wait_until_set(ticket, HEARTBEAT_S):
                    yield HEARTBEAT
        finally:
            self._listeners -= 1

    async def _text(self, frames: list[Frame], job: str | None, caller: Caller) -> bytes:
        """Return the frames that a caller may read."""
        wanted = [each for each in frames if job in (None, each.job)]
        if wanted and not caller.reads_all:
            wanted = await self._backend.read_inline(visible_facts, caller, wanted)
        return b"".join(each.text for each in wanted)

    def _begin(self, after: int) -> None:
        if self._reading is None or self._reading.done():
            self._kept.clear()
            self._read_to = after
            self._reading = asyncio.create_task(self._read_on())

    async def _read_on(self) -> None:
        while self._listeners and not self._backend.stopping:
            ticket = self._backend.ticket()
            try:
                page = await self._page(self._read_to)
            except (GantreeError, OSError) as error:
                log.error("facts could not be read, trying again: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if page:
                self._kept.extend(page)
                self._read_to = page[-1].seq
                self._news.tick()
            else:
                await wait_until_set(ticket, HEARTBEAT_S)
        self._news.tick()

    async def _after(self, after: int) -> list[Frame]:
        """Frames after a place: of those kept where they reach so far back, else of the journal."""
        if after >= self._read_to:
            return []
        if self._kept and self._kept[0].seq <= after + 1:
            skipped = after + 1 - self._kept[0].seq
            return list(islice(self._kept, skipped, skipped + AT_ONCE))
        return await self._page(after)

    async def _page(self, after: int) -> list[Frame]:
        return await self._backend.read_inline(page_of, after)


def page_of(view: ReadView, after: int) -> list[Frame]:
    """The next frames."""
    return _frames(islice(view.journal.facts(after), AT_ONCE))


def _frames(facts: Iterable[RecordedFact]) -> list[Frame]:
    return [_frame(job_view.fact(recorded)) for recorded in facts]


def _frame(told: Json) -> Frame:
    data = json.dumps(told, separators=(",", ":"))
    text = f"id: {told['seq']}\nevent: {told['fact']}\ndata: {data}\n\n"
    return Frame(told["seq"], told["data"].get("job"), text.encode())


def visible_facts(view: ReadView, caller: Caller, frames: list[Frame]) -> list[Frame]:
    """Yield the frames that a caller may read."""
    facts = [json.loads(frame.text.partition(b"\ndata: ")[2]) for frame in frames]
    return [_frame(fact) for fact in facts_visible_to(caller, view.ledger, facts)]


def bounds(view: ReadView) -> tuple[int, int]:
    """The seq up to which facts are gone, and that of the newest."""
    return view.journal.compacted_to(), view.journal.last_fact()
