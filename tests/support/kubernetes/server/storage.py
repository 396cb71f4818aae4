"""What an API server keeps: objects by resource, each with its revision and its encoded bytes, and what has changed.

One counter counts every change of anything (etcd's revision); an object's resourceVersion is the count at its last
change. A table keeps the latest changes in order, so that a watch can go on where another ended; what has been
forgotten is answered with 410.

**Content is never changed in place.** A write puts new content beside the old, so a list in pages, a watch and a
reader may hold on to what they have got. Bytes are made once for each write: an answer, a list and each watch put a
few of their own around them.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from support.kubernetes.server.statuses import Json

Key = tuple[str, str]
"""(namespace, name); the namespace of what has none is empty."""

encode: Callable[[object], bytes] = msgspec.json.Encoder().encode


@dataclass(slots=True, frozen=True)
class Stored:
    """An object at one revision. encoded is its content without kind and apiVersion."""

    content: Json
    revision: int
    encoded: bytes

    @property
    def key(self) -> Key:
        """Where it is kept."""
        metadata = self.content["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


@dataclass(slots=True, frozen=True)
class Change:
    """What has become of an object: before is None if it is new, deleted if after is the last that was seen of it."""

    revision: int
    before: Stored | None
    after: Stored
    deleted: bool = False
    lines: dict[bytes, bytes] = field(default_factory=dict)
    """The event as bytes, by what stands before the object: made for the first watch that wants it, kept for all."""

    def line(self, head: bytes) -> bytes:
        """The event as a watch sends it. head holds its type and the object's kind."""
        line = self.lines.get(head)
        if line is None:
            line = self.lines[head] = head + self.after.encoded[1:] + b"}\n"
        return line


Listener = Callable[[Change], None]


@dataclass(slots=True)
class Table:
    """The objects of one resource, and its latest changes, oldest first."""

    group: str
    plural: str
    kept_changes: int
    forgotten: int
    """Changes up to this revision are no longer kept."""
    items: dict[Key, Stored] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)

    def record(self, change: Change) -> None:
        """Carry out a change, and tell who listens."""
        if change.deleted:
            del self.items[change.after.key]
        else:
            self.items[change.after.key] = change.after
        self.changes.append(change)
        if len(self.changes) > 2 * self.kept_changes:
            self.forget(self.changes[-self.kept_changes - 1].revision)
        for listener in tuple(self.listeners):
            listener(change)

    def forget(self, revision: int) -> None:
        """Keep no change up to this revision."""
        if revision <= self.forgotten:
            return
        self.changes = list(self.since(revision))
        self.forgotten = revision

    def since(self, revision: int) -> list[Change]:
        """The kept changes after a revision."""
        return self.changes[bisect_right(self.changes, revision, key=attrgetter("revision")) :]

    def sorted(self) -> list[Stored]:
        """All objects, by namespace and name, as a list tells them."""
        return [self.items[key] for key in sorted(self.items)]

    def set_back(self, revision: int) -> None:
        """Be as at a revision that is still kept. Nobody is told."""
        self.items = {stored.key: stored for stored in self.as_of(revision)}
        self.changes = [change for change in self.changes if change.revision <= revision]

    def as_of(self, revision: int) -> list[Stored]:
        """All objects as they were at a revision that is still kept."""
        items = dict(self.items)
        for change in reversed(self.since(revision)):
            if change.before is None:
                items.pop(change.after.key, None)
            else:
                items[change.before.key] = change.before
        return [items[key] for key in sorted(items)]


class Store:
    """All tables, and the counter that they share."""

    def __init__(self, kept_changes: int, first_revision: int = 1) -> None:
        self.revision = first_revision
        self.kept_changes = kept_changes
        self.compacted = 0
        self.listener: Callable[[Table, Change], None] = lambda table, change: None
        """Hears of every change of anything."""
        self._tables: dict[tuple[str, str], Table] = {}

    def table(self, group: str, plural: str) -> Table:
        """The table of a resource."""
        table = self._tables.get((group, plural))
        if table is None:
            table = self._tables[group, plural] = Table(
                group, plural, self.kept_changes, self.compacted
            )
        return table

    def tables(self) -> Iterator[tuple[tuple[str, str], Table]]:
        """All tables that have been asked for."""
        yield from tuple(self._tables.items())

    def put(self, table: Table, content: Json) -> Stored:
        """Write an object; its resourceVersion is set here."""
        metadata = content["metadata"]
        before = table.items.get((metadata.get("namespace", ""), metadata["name"]))
        stored = self._next(content)
        return self._record(table, Change(stored.revision, before, stored))

    def remove(self, table: Table, before: Stored, content: Json) -> Stored:
        """Take an object away; content is the last that is seen of it."""
        stored = self._next(content)
        return self._record(table, Change(stored.revision, before, stored, deleted=True))

    def compact(self) -> None:
        """Forget all changes up to now, as a compaction of etcd would."""
        self.compacted = self.revision
        for _, table in self.tables():
            table.forget(self.revision)

    def set_back(self, revision: int) -> None:
        """Be as at an older revision, and count on from there, as etcd does that was restored from a snapshot."""
        assert self.compacted <= revision <= self.revision, f"{revision} is not kept"
        for _, table in self.tables():
            table.set_back(revision)
        self.revision = revision

    def _record(self, table: Table, change: Change) -> Stored:
        table.record(change)
        self.listener(table, change)
        return change.after

    def _next(self, content: Json) -> Stored:
        self.revision += 1
        metadata = {**content["metadata"], "resourceVersion": str(self.revision)}
        content = {**content, "metadata": metadata}
        return Stored(content, self.revision, encode(content))
