"""Keeps a copy of all objects of a kind: a list, then a watch; both again whenever the watch breaks.

A server may end a watch at any moment, tell of something twice, and remember too little to go on from where a watch
broke. So every list is compared with the copy, and what differs is told as if it had been watched: nobody who is told
of changes can miss one, or sees an object come that is there already.

A server may also be set back: etcd restored from a snapshot counts on from an older revision (but where that was done
with `--bump-revision --mark-compacted`), and a watch from a newer one is told nothing until that is reached again, and
misses what comes before. So before a watch goes on from where it broke the server is asked at which revision it is.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from gantree.executors.kubernetes.apiserver.client import (
    ApiError,
    Change,
    Client,
    Gone,
    Key,
    Listed,
    Resource,
)
from gantree.executors.kubernetes.apiserver.objects import Metadata
from gantree.model.errors import Unreachable

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 15.0
"""Pauses after errors double from the first to the longest."""
SHORT_S = 1.0
"""A watch that delivered nothing and ended sooner was refused, whatever the server said."""

log = logging.getLogger(__name__)


class HasMetadata(Protocol):
    """An object with an identity."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=HasMetadata)
OnChange = Callable[[Key, T | None, T | None], None]
"""Told of each change: the key, the object before, None where there was none, and after, None where it is gone."""


class Reflector(Generic[T]):
    """A copy of the objects of one resource, and the listener to its changes."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        told: OnChange[T],
        copy: dict[Key, T] | None = None,
    ) -> None:
        """copy holds the objects that the listener has already."""
        self.copy = {} if copy is None else copy
        self.synced = asyncio.Event()
        self.lists = 0
        """How often all objects were listed."""
        self.trouble: str | None = None
        """Why there is no watch at the moment."""
        self._client, self._resource, self._told = client, resource, told
        self._version = ""
        self._is_sound = False
        """Whether the last watch delivered anything, or lasted."""

    async def run(self) -> None:
        """Run until cancelled. A watch that has ended by its time is followed by the next, after errors by a pause."""
        pause_s = FIRST_PAUSE_S
        while True:
            has_failed = await self._has_failed()
            if self._is_sound:
                pause_s = FIRST_PAUSE_S
            if has_failed or not self._is_sound:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _has_failed(self) -> bool:
        """Follow once; whether that ended by an error."""
        self._is_sound = False
        try:
            await self._follow()
        except Gone:
            self._version = ""
        except (ApiError, Unreachable) as error:
            self._say(f"{self._resource.path}: {error}")
        else:
            return False
        return True

    def forget(self) -> None:
        """Remove all objects; it must not run again."""
        for key in list(self.copy):
            self._put(key, None)

    async def _follow(self) -> None:
        """List, unless it is known from where to go on, and watch until the server has enough."""
        if self._version and await self._is_set_back():
            log.warning("%s: the server was set back: all is listed anew", self._resource.path)
            self._version = ""
        if not self._version:
            listed = await self._client.list(self._resource)
            self._replace(listed)
            self._version = listed.version
            self.lists += 1
            self.synced.set()
        loop = asyncio.get_running_loop()
        short_until = loop.time() + SHORT_S
        async for change in self._client.watch(self._resource, self._version):
            self.trouble, self._is_sound = None, True
            self._apply(change)
            self._version = change.resource_version
        if loop.time() >= short_until:
            self.trouble, self._is_sound = None, True

    async def _is_set_back(self) -> bool:
        """Return whether the server is at an older revision than it was."""
        newest = await self._client.revision(self._resource)
        return order_of(newest) < order_of(self._version)

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.warning("no watch, trying again: %s", trouble)
        self.trouble = trouble

    def _replace(self, listed: Listed[T]) -> None:
        """Tell the difference between the copy and what there is; what cannot be read stays as it was."""
        now = {_key(each): each for each in listed.objects}
        for key in [key for key in self.copy if key not in now and key not in listed.unread]:
            self._put(key, None)
        for key, thing in now.items():
            self._put(key, thing)

    def _apply(self, change: Change[T]) -> None:
        if change.type == "DELETED":
            self._put(change.key, None)
        elif change.object is not None:
            self._put(change.key, change.object)

    def _put(self, key: Key, after: T | None) -> None:
        """Change the copy; an object that was replaced by another of its name goes first."""
        before = self.copy.get(key)
        if before is not None and after is not None:
            if (
                before == after
            ):  # not by version alone: a server that was set back gives them out again
                return
            if before.metadata.uid != after.metadata.uid:
                self._told(key, before, None)
                before = None
        if after is None:
            self.copy.pop(key, None)
        else:
            self.copy[key] = after
        if before is not None or after is not None:
            self._told(key, before, after)


def _key(thing: HasMetadata) -> Key:
    return thing.metadata.namespace, thing.metadata.name


def order_of(version: str) -> int:
    """Where a resourceVersion stands among those of its kind: they are numbers that only grow."""
    return int(version) if version.isdecimal() else 0


async def all_synced(reflectors: Iterable[Reflector[Any]]) -> None:
    """Wait until each has listed once."""
    await asyncio.gather(*(each.synced.wait() for each in reflectors))
