"""A dry run: a client that shows gantree a cluster in which it schedules, while another scheduler does.

    the server --- what is there ---> ShadowClient --- the same, with our bindings in it ---> gantree
    the server                        ShadowClient <-------- bindings, deletions, ... ------- gantree

Pods of the scheduler in charge are shown as waiting until gantree binds them, wherever they are in truth; then as
running where gantree put them, and as ended once they have run there for as long as they did in truth (never before
they have: what gantree starts earlier it holds longer than it would, so its figures are on the safe side). A pod that
gantree stops is shown as gone, and as a new one of its name, as whoever makes it would make it. What was bound when the
dry run began stays where it is and counts as others'.

Nothing is written: `write` takes each request for itself, and the client below is told that it does not lead, so that
it refuses to send what is no GET.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from gantree.executors.kubernetes.apiserver.client import (
    JSON,
    ApiError,
    Change,
    Client,
    Key,
    Listed,
    Resource,
)
from gantree.executors.kubernetes.apiserver.connection import Reach
from gantree.executors.kubernetes.apiserver.objects import Node, Pod
from gantree.executors.kubernetes.tools.shadow_tally import Shade, Tally
from gantree.executors.kubernetes.writes.writes import PODS
from gantree.model.errors import Unreachable

T = TypeVar("T")
Changed = Change[Pod]
REPORTS_EVERY_S = 10.0


class ShadowClient(Client):
    """Reads as any client does, and writes nothing."""

    def __init__(
        self,
        reach: Reach,
        shadow_of: str,
        report: Callable[[Tally], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """shadow_of is the schedulerName of the pods that are decided about; report is called from time to time."""
        super().__init__(reach, leads=lambda: False)
        self.tally = Tally(clock())
        self._shadow_of, self._clock = shadow_of, clock
        self._shades: dict[str, Shade] = {}
        self._uid_of_name: dict[Key, str] = {}
        self._is_begun = False
        self._as_they_are: set[str] = set()
        """Pods of the scheduler in charge that were on a node when the dry run began, or have ended unseen."""
        self._version = ""
        self._made: asyncio.Queue[Any] = asyncio.Queue()
        self._report = report
        self._reporting = asyncio.ensure_future(self._report_again())

    async def close(self) -> None:
        """Report for the last time, and let go of the connections."""
        self._reporting.cancel()
        self._tell()
        await super().close()

    # ----- what gantree reads

    async def list(self, resource: Resource[T]) -> Listed[T]:
        """What is there, as it is shown."""
        told: Listed[Any] = await super().list(resource)
        if resource.path != PODS.path:
            self._note_nodes(told)
            return told
        self._version = told.version
        while not self._made.empty():
            self._made.get_nowait()  # the list says it all, and later than what a watch had left
        there = {pod.metadata.uid for pod in told.objects}
        for uid in [uid for uid in self._shades if uid not in there]:
            self._lose(uid)
        self._as_they_are &= there
        self.tally.keep_others(there, self._clock())
        for shade in [self._see(pod) for pod in told.objects]:
            if shade is not None:
                self._end_in_time(shade)
        self._is_begun = True
        shown: Any = [self._shown(pod) for pod in told.objects]
        shown += [shade.shown() for shade in self._shades.values() if shade.is_left_over]
        return Listed(shown, told.unread, told.version)

    async def watch(self, resource: Resource[T], version: str) -> AsyncIterator[Change[T]]:
        """What happens, as it is shown: changes of the server, and those that our own bindings make."""
        if resource.path != PODS.path:
            async for change in super().watch(resource, version):
                self._note_node(change)
                yield change
            return
        self._version = version
        pump = asyncio.ensure_future(self._pump(resource, version))
        try:
            while (change := await self._made.get()) is not None:
                if isinstance(change, Exception):
                    raise change
                yield change
        finally:
            pump.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await pump

    async def _pump(self, resource: Resource[Any], version: str) -> None:
        """Put what the server tells into the one line; its end, or what ended it, too."""
        try:
            async for change in Client.watch(self, resource, version):
                self._version = change.resource_version
                for shown in self._translated(change):
                    self._made.put_nowait(shown)
        except Exception as error:
            self._made.put_nowait(error)
        else:
            self._made.put_nowait(None)

    def _translated(self, change: Changed) -> Sequence[Changed]:
        """A change of a pod as it is shown; none where what it tells is ours to decide."""
        pod = change.object
        if change.type == "BOOKMARK" or pod is None:
            return [change]
        is_new = pod.metadata.uid not in self._shades
        if change.type == "DELETED":
            self._lose(pod.metadata.uid)
            return [change] if is_new else []
        shade = self._see(pod)
        if shade is None:
            return [change]
        shown = [] if shade.ours.node else [self._news("ADDED" if is_new else "MODIFIED", shade)]
        self._end_in_time(shade)
        return shown

    def _see(self, pod: Pod) -> Shade | None:
        """Note what a pod does in truth; None for one that is shown as it is."""
        now, uid = self._clock(), pod.metadata.uid
        shade = self._shades.get(uid)
        if shade is None:
            if (pod.spec.node_name and not self._is_begun) or pod.has_ended:
                self._as_they_are.add(uid)
            if uid in self._as_they_are or pod.spec.scheduler_name != self._shadow_of:
                self.tally.see_other(pod, now)
                return None
            self._make_way(pod, now)
            shade = self._shades[uid] = Shade(pod, now)
            self._uid_of_name[pod.metadata.namespace, pod.metadata.name] = uid
            self.tally.begin(shade)
        self.tally.see(shade, pod, now)
        return shade

    def _make_way(self, pod: Pod, now: float) -> None:
        """One of its name that is gone in truth, and ran on here, is over: nobody sees two pods of one name."""
        uid = self._uid_of_name.get((pod.metadata.namespace, pod.metadata.name))
        if uid is not None:
            self.tally.release(self._shades[uid], now)
            self._forget(self._shades[uid])

    def _shown(self, pod: Pod) -> Pod:
        shade = self._shades.get(pod.metadata.uid)
        return pod if shade is None else shade.shown()

    def _lose(self, uid: str) -> None:
        """A pod is gone in truth."""
        shade = self._shades.get(uid)
        if shade is None:
            self.tally.lose_other(uid, self._clock())
            self._as_they_are.discard(uid)
            return
        if shade.is_left_over:
            return
        shade.is_left_over = True
        self.tally.end(shade, self._clock())
        self._end_in_time(shade)

    # ----- what gantree writes

    async def write(self, method: str, path: str, body: object, kind: str = JSON) -> bytes:
        """Do as if it were done. Raises ApiError where the server would refuse a binding."""
        self._take(method, path, body)
        return msgspec.json.encode(body)

    def post(
        self, path: str, body: object, told: Callable[[ApiError | Unreachable | None], None]
    ) -> None:
        """As `write`."""
        try:
            self._take("POST", path, body)
        except ApiError as error:
            told(error)
        else:
            told(None)

    def _take(self, method: str, path: str, body: object) -> None:
        steps = [unquote(step) for step in path.split("/")]
        match (method, steps):
            case "POST", ["api", "v1", "namespaces", space, "pods", name, "binding"]:
                self._bind(self._shade(space, name), body)
            case "DELETE", ["api", "v1", "namespaces", space, "pods", name]:
                self._stop(self._shade(space, name))
            case "POST", ["api", "v1", "namespaces", space, "pods", name, "eviction"]:
                self._stop(self._shade(space, name))
            case _:
                pass
        self.tally.withhold(method, steps)

    def _shade(self, namespace: str, name: str) -> Shade:
        uid = self._uid_of_name.get((namespace, name))
        shade = None if uid is None else self._shades.get(uid)
        if shade is None:
            raise ApiError(404, "NotFound", f'pods "{name}" not found')
        return shade

    def _bind(self, shade: Shade, body: Any) -> None:
        meant = body["metadata"].get("uid", shade.shown_uid)
        if meant != shade.shown_uid or shade.ours.node:
            raise ApiError(409, "Conflict", "it is another pod, or already assigned")
        self.tally.bind(shade, body["target"]["name"], self._clock())
        shade.annotations = dict(body["metadata"].get("annotations") or {})
        self._made.put_nowait(self._news("MODIFIED", shade))
        self._end_in_time(shade)

    def _stop(self, shade: Shade) -> None:
        """It is shown as gone, and as waiting again unless it has ended in truth."""
        self._made.put_nowait(self._news("DELETED", shade))
        self.tally.stop(shade, self._clock())
        if shade.is_left_over or shade.pod.has_ended:
            self._forget(shade)
        else:
            self._made.put_nowait(self._news("ADDED", shade))

    # ----- what follows

    def _end_in_time(self, shade: Shade) -> None:
        """Show that a pod has ended once it has run here for as long as it did in truth."""
        if shade.ended_at is None:
            return
        if shade.theirs.bound_at is None:
            self._over(shade, shade.stops)
        elif shade.ours.bound_at is not None and not shade.is_ending:
            shade.is_ending = True
            lasts_s = shade.ended_at - shade.theirs.bound_at
            left_s = shade.ours.bound_at + lasts_s - self._clock()
            asyncio.get_running_loop().call_later(max(0.0, left_s), self._over, shade, shade.stops)

    def _over(self, shade: Shade, stops: int) -> None:
        """Show its end, unless it was stopped meanwhile."""
        if shade.stops != stops or shade.pod.metadata.uid not in self._shades:
            return
        self.tally.release(shade, self._clock())
        shade.is_over = True
        if shade.pod.has_ended:
            self._made.put_nowait(self._news("MODIFIED", shade))
        else:
            self._made.put_nowait(self._news("DELETED", shade))
        if shade.is_left_over:
            if shade.pod.has_ended:
                self._made.put_nowait(self._news("DELETED", shade))
            self._forget(shade)

    def _forget(self, shade: Shade) -> None:
        meta = shade.pod.metadata
        self._shades.pop(meta.uid, None)
        if self._uid_of_name.get((meta.namespace, meta.name)) == meta.uid:
            del self._uid_of_name[meta.namespace, meta.name]

    def _news(self, kind: str, shade: Shade) -> Changed:
        """A change that the server does not know of; a watch goes on from the last that it does."""
        shade.edition += 1
        pod = shade.shown()
        return Change(kind, (pod.metadata.namespace, pod.metadata.name), pod, self._version)

    # ----- the report

    def _note_nodes(self, told: Listed[Any]) -> None:
        nodes = {each.metadata.name: each for each in told.objects if isinstance(each, Node)}
        for name in [name for name in self.tally.nodes if nodes and name not in nodes]:
            self.tally.see_node(name, None)
        for name, node in nodes.items():
            self.tally.see_node(name, node)

    def _note_node(self, change: Change[Any]) -> None:
        if isinstance(change.object, Node):
            gone = change.type == "DELETED"
            self.tally.see_node(change.object.metadata.name, None if gone else change.object)

    async def _report_again(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(REPORTS_EVERY_S)

    def _tell(self) -> None:
        self.tally.advance(self._clock())
        self._report(self.tally)
