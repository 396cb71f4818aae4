"""What becomes of the pods of a run: when each was asked for, tried, and bound, as a watch of all pods tells."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from support.kubernetes.client import Client

Json = dict[str, Any]
Key = tuple[str, str]
LOOK_EVERY_S = 0.02


@dataclass(slots=True)
class Pod:
    """One pod; moments of `time.monotonic`, 0.0 where it did not come to that."""

    namespace: str
    labels: dict[str, str]
    seen_at: float
    attempted_at: float = 0.0
    bound_at: float = 0.0
    is_gone: bool = False


def selects(selector: dict[str, str] | None, labels: dict[str, str]) -> bool:
    """Whether labels have all that a selector wants."""
    return all(labels.get(key) == value for key, value in (selector or {}).items())


class Pods:
    """All pods that there were. asked_at are the moments in which their creation was asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.all: dict[Key, Pod] = {}
        self.asked_at: dict[Key, float] = {}
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._watch = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """End the watch."""
        assert self._watch is not None
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds. What is measured are the moments of the watch, so a look now and then is enough."""
        while not condition():
            await asyncio.sleep(LOOK_EVERY_S)

    async def until_bound(self, keys: Iterable[Key]) -> None:
        """Wait until each of these pods is bound, or gone."""
        left = set(keys)

        def none_is_left() -> bool:
            left.difference_update([key for key in left if self._is_done(key)])
            return not left

        await self.until(none_is_left)

    def chosen(
        self, namespaces: Iterable[str] | None, selector: dict[str, str] | None
    ) -> list[Pod]:
        """Those of some namespaces (None: all) that a selector selects."""
        wanted = None if namespaces is None else set(namespaces)
        return [
            pod
            for pod in self.all.values()
            if (wanted is None or pod.namespace in wanted) and selects(selector, pod.labels)
        ]

    def _is_done(self, key: Key) -> bool:
        pod = self.all.get(key)
        return pod is not None and (pod.bound_at > 0 or pod.is_gone)

    async def _follow(self) -> None:
        async for kind, content in self._client.follow("/api/v1/pods", {}):
            self._note(kind, content)

    def _note(self, kind: str, content: Json) -> None:
        meta, now = content["metadata"], time.monotonic()
        key = (meta["namespace"], meta["name"])
        pod = self.all.setdefault(key, Pod(key[0], meta.get("labels", {}), now))
        pod.is_gone = kind == "DELETED"
        if content["spec"].get("nodeName"):
            pod.bound_at = pod.bound_at or now
            pod.attempted_at = pod.attempted_at or now
        elif any(
            each["type"] == "PodScheduled" for each in content["status"].get("conditions", ())
        ):
            pod.attempted_at = pod.attempted_at or now
