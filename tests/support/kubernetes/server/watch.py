"""Watches: what changes of a resource, told as it happens.

A watch begins at a revision and tells every change after it, in order; where the changes since then are no longer kept
it tells 410. From a revision that is yet to come it tells nothing, bookmarks neither, until that has come: a server's
watch cache passes over what is not newer than where the watch began. Without a revision, or from 0, it first tells what
is there, as if it had just come. A change that takes an object out of what was asked for is told as its deletion, one
that brings it in as its creation.

A watch whose reader is slow is ended by the server: its reader goes on from what it saw last.
"""

import asyncio
from collections import deque
from collections.abc import Mapping

from support.kubernetes.rules.resources import Resource
from support.kubernetes.server.lists import Question
from support.kubernetes.server.queries import flag, number
from support.kubernetes.server.statuses import Json, Refusal, expired, invalid_option
from support.kubernetes.server.storage import Change, Store, encode

INITIAL_END = "k8s.io/initial-events-end"
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
MATCH_ALONE = (
    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
)
NO_MATCH = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"


class Watch:
    """One watch. lines are those that were not sent yet; they end when ended is set.

    room is how many lines may wait for the reader, beside those of the beginning.
    """

    def __init__(self, resource: Resource, question: Question, store: Store, room: int) -> None:
        self.resource = resource
        self.question = question
        self.store = store
        self.table = store.table(resource.group, resource.plural)
        self.room = room
        self.lines: deque[bytes] = deque()
        self.revision = self.begun_at = store.revision
        self.told = 0
        self.ended = False
        self.is_cut = False
        self._is_listening = False
        self._news = asyncio.Event()
        self._heads = {
            kind: f'{{"type":"{kind}","object":'.encode() + resource.head
            for kind in (ADDED, MODIFIED, DELETED)
        }

    def begin(self, query: Mapping[str, str], gone_in_stream: bool) -> None:
        """Tell what the query's revision asks for, and listen from now on."""
        asked = number(query, "resourceVersion")
        initial = self._wants_initial(query)
        if asked and not initial:
            self._resume(asked, gone_in_stream)
        elif initial is not False:
            self._tell_all()
        if initial and flag(query, "allowWatchBookmarks"):
            self.bookmark({INITIAL_END: "true"})
        self.begun_at = asked if asked and not initial else self.revision
        if not self.ended:
            self.table.listeners.append(self._hear)
            self._is_listening = True

    def _wants_initial(self, query: Mapping[str, str]) -> bool | None:
        """sendInitialEvents, which needs resourceVersionMatch; None where it is not said."""
        told, match = flag(query, "sendInitialEvents"), query.get("resourceVersionMatch")
        if told is None:
            if match:
                raise invalid_option("resourceVersionMatch", MATCH_ALONE)
            return None
        if match != "NotOlderThan":
            raise invalid_option("resourceVersionMatch", NO_MATCH)
        return told

    def _resume(self, revision: int, gone_in_stream: bool) -> None:
        if revision < self.table.forgotten:
            gone = expired(f"too old resource version: {revision} ({self.table.forgotten})")
            if not gone_in_stream:
                raise gone
            self._fail(gone)
            return
        self.revision = revision
        for change in self.table.since(revision):
            self._hear(change)

    def _fail(self, refusal: Refusal) -> None:
        self._say(encode({"type": "ERROR", "object": refusal.status}) + b"\n")
        self.end()

    def _tell_all(self) -> None:
        for stored in self.table.sorted():
            if self.question.covers(stored):
                self._say(self._heads[ADDED] + stored.encoded[1:] + b"}\n")
        self.revision = self.store.revision

    def _hear(self, change: Change) -> None:
        if change.revision <= self.revision:
            return
        kind = self._kind(change)
        if kind == DELETED and not change.deleted:
            self._say(self._heads[kind] + _as_left(change)[1:] + b"}\n")
        elif kind:
            self._say(change.line(self._heads[kind]))
        self.revision = change.revision

    def _kind(self, change: Change) -> str | None:
        """As what a change is told here; None: it is not."""
        was = change.before is not None and self.question.covers(change.before)
        is_now = not change.deleted and self.question.covers(change.after)
        if is_now:
            return MODIFIED if was else ADDED
        return DELETED if was else None

    def _say(self, line: bytes) -> None:
        if self._is_listening and len(self.lines) >= self.room:
            self.end()
            return
        self.lines.append(line)
        self._news.set()

    def tell_progress(self, *, is_noted: bool) -> None:
        """A bookmark, if anything is known that is newer than where the watch began: a change of its own resource,
        or, where etcd has noted how far it is, any.
        """
        own = self.table.changes[-1].revision if self.table.changes else 0
        revision = self.store.revision if is_noted else own
        if revision > self.begun_at:
            self.bookmark(revision=revision)

    def bookmark(self, annotations: Json | None = None, revision: int | None = None) -> None:
        """Tell up to which revision all was told."""
        if self.store.revision < self.revision:
            return
        metadata: Json = {"resourceVersion": str(revision or self.store.revision)}
        if annotations:
            metadata["annotations"] = annotations
        content = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": metadata,
        }
        self._say(encode({"type": "BOOKMARK", "object": content}) + b"\n")

    def end(self, cut: bool = False) -> None:
        """Tell no more. cut: the connection breaks instead of ending in order."""
        self.ended, self.is_cut = True, self.is_cut or cut
        if self._hear in self.table.listeners:
            self.table.listeners.remove(self._hear)
        self._news.set()

    async def next_lines(self, within_s: float, at_most: int | None) -> list[bytes]:
        """The lines that wait, or those that come within a time; none if none come or if it has ended."""
        if not self.lines and not self.ended:
            self._news.clear()
            try:
                async with asyncio.timeout(within_s):
                    await self._news.wait()
            except TimeoutError:
                return []
        count = len(self.lines) if at_most is None else min(at_most, len(self.lines))
        self.told += count
        return [self.lines.popleft() for _ in range(count)]


def _as_left(change: Change) -> bytes:
    """An object that is no longer asked for: as it was while it still was, at the revision of the change."""
    assert change.before is not None
    metadata = {**change.before.content["metadata"], "resourceVersion": str(change.revision)}
    return encode({**change.before.content, "metadata": metadata})
