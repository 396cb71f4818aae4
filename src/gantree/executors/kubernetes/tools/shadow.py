"""A dry run: an API client that presents a cluster, which another scheduler serves, as one that gantree schedules.

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
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Node, Pod
from gantree.executors.kubernetes.tools.shadow_tally import ShadowPod, ShadowTally
from gantree.executors.kubernetes.writes.writes import PODS
from gantree.model.errors import Unreachable

T = TypeVar("T")
Changed = Change[Pod]
REPORTS_EVERY_S = 10.0


class ShadowClient(Client):
    """Reads as any client does, and writes nothing.

    One class: it overrides what a client reads and writes, and both sides change the same pods.
    """

    def __init__(
        self,
        connection: Connection,
        shadow_of: str,
        report: Callable[[ShadowTally], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """shadow_of is the schedulerName of the pods that are decided about; report is called from time to time."""
        super().__init__(connection, leads=lambda: False)
        self.tally = ShadowTally(clock())
        self._shadow_of, self._clock = shadow_of, clock
        self._pods: dict[str, ShadowPod] = {}
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
        for uid in [uid for uid in self._pods if uid not in there]:
            self._lose(uid)
        self._as_they_are &= there
        self.tally.keep_foreign_pods(there, self._clock())
        for shadow_pod in [self._see(pod) for pod in told.objects]:
            if shadow_pod is not None:
                self._end_in_time(shadow_pod)
        self._is_begun = True
        shown: Any = [self._shown(pod) for pod in told.objects]
        shown += [
            shadow_pod.shown() for shadow_pod in self._pods.values() if shadow_pod.is_left_over
        ]
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
        """Put the events of the server into one queue, and the end of the watch or its error."""
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
        """Return a change of a pod for the dry run; None if it only concerns what gantree decides."""
        pod = change.object
        if change.type == "BOOKMARK" or pod is None:
            return [change]
        is_new = pod.metadata.uid not in self._pods
        if change.type == "DELETED":
            self._lose(pod.metadata.uid)
            return [change] if is_new else []
        shadow_pod = self._see(pod)
        if shadow_pod is None:
            return [change]
        shown = (
            []
            if shadow_pod.ours.node
            else [self._shown_change("ADDED" if is_new else "MODIFIED", shadow_pod)]
        )
        self._end_in_time(shadow_pod)
        return shown

    def _see(self, pod: Pod) -> ShadowPod | None:
        """Note what a pod does in truth; None for one that is shown as it is."""
        now, uid = self._clock(), pod.metadata.uid
        shadow_pod = self._pods.get(uid)
        if shadow_pod is None:
            if (pod.spec.node_name and not self._is_begun) or pod.has_ended:
                self._as_they_are.add(uid)
            if uid in self._as_they_are or pod.spec.scheduler_name != self._shadow_of:
                self.tally.update_foreign_pod(pod, now)
                return None
            self._make_way(pod, now)
            shadow_pod = self._pods[uid] = ShadowPod(pod, now)
            self._uid_of_name[pod.metadata.namespace, pod.metadata.name] = uid
            self.tally.add(shadow_pod)
        self.tally.update(shadow_pod, pod, now)
        return shadow_pod

    def _make_way(self, pod: Pod, now: float) -> None:
        """End a simulated pod whose real pod is gone before another pod of its name is shown."""
        uid = self._uid_of_name.get((pod.metadata.namespace, pod.metadata.name))
        if uid is not None:
            self.tally.release(self._pods[uid], now)
            self._forget(self._pods[uid])

    def _shown(self, pod: Pod) -> Pod:
        shadow_pod = self._pods.get(pod.metadata.uid)
        return pod if shadow_pod is None else shadow_pod.shown()

    def _lose(self, uid: str) -> None:
        """A pod is gone in truth."""
        shadow_pod = self._pods.get(uid)
        if shadow_pod is None:
            self.tally.remove_foreign_pod(uid, self._clock())
            self._as_they_are.discard(uid)
            return
        if shadow_pod.is_left_over:
            return
        shadow_pod.is_left_over = True
        self.tally.end(shadow_pod, self._clock())
        self._end_in_time(shadow_pod)

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
                self._bind(self._pod(space, name), body)
            case "DELETE", ["api", "v1", "namespaces", space, "pods", name]:
                self._stop(self._pod(space, name))
            case "POST", ["api", "v1", "namespaces", space, "pods", name, "eviction"]:
                self._stop(self._pod(space, name))
            case _:
                pass
        self.tally.withhold(method, steps)

    def _pod(self, namespace: str, name: str) -> ShadowPod:
        uid = self._uid_of_name.get((namespace, name))
        shadow_pod = None if uid is None else self._pods.get(uid)
        if shadow_pod is None:
            raise ApiError(404, "NotFound", f'pods "{name}" not found')
        return shadow_pod

    def _bind(self, shadow_pod: ShadowPod, body: Any) -> None:
        meant = body["metadata"].get("uid", shadow_pod.shown_uid)
        if meant != shadow_pod.shown_uid or shadow_pod.ours.node:
            raise ApiError(409, "Conflict", "it is another pod, or already assigned")
        self.tally.bind(shadow_pod, body["target"]["name"], self._clock())
        shadow_pod.annotations = dict(body["metadata"].get("annotations") or {})
        self._made.put_nowait(self._shown_change("MODIFIED", shadow_pod))
        self._end_in_time(shadow_pod)

    def _stop(self, shadow_pod: ShadowPod) -> None:
        """It is shown as gone, and as waiting again unless it has ended in truth."""
        self._made.put_nowait(self._shown_change("DELETED", shadow_pod))
        self.tally.stop(shadow_pod, self._clock())
        if shadow_pod.is_left_over or shadow_pod.pod.has_ended:
            self._forget(shadow_pod)
        else:
            self._made.put_nowait(self._shown_change("ADDED", shadow_pod))

    # ----- what follows

    def _end_in_time(self, shadow_pod: ShadowPod) -> None:
        """Show that a pod has ended once it has run here for as long as it did in truth."""
        if shadow_pod.ended_at is None:
            return
        if shadow_pod.theirs.bound_at is None:
            self._over(shadow_pod, shadow_pod.stops)
        elif shadow_pod.ours.bound_at is not None and not shadow_pod.is_ending:
            shadow_pod.is_ending = True
            lasts_s = shadow_pod.ended_at - shadow_pod.theirs.bound_at
            left_s = shadow_pod.ours.bound_at + lasts_s - self._clock()
            asyncio.get_running_loop().call_later(
                max(0.0, left_s), self._over, shadow_pod, shadow_pod.stops
            )

    def _over(self, shadow_pod: ShadowPod, stops: int) -> None:
        """Show its end, unless it was stopped meanwhile."""
        if shadow_pod.stops != stops or shadow_pod.pod.metadata.uid not in self._pods:
            return
        self.tally.release(shadow_pod, self._clock())
        shadow_pod.is_over = True
        if shadow_pod.pod.has_ended:
            self._made.put_nowait(self._shown_change("MODIFIED", shadow_pod))
        else:
            self._made.put_nowait(self._shown_change("DELETED", shadow_pod))
        if shadow_pod.is_left_over:
            if shadow_pod.pod.has_ended:
                self._made.put_nowait(self._shown_change("DELETED", shadow_pod))
            self._forget(shadow_pod)

    def _forget(self, shadow_pod: ShadowPod) -> None:
        meta = shadow_pod.pod.metadata
        self._pods.pop(meta.uid, None)
        if self._uid_of_name.get((meta.namespace, meta.name)) == meta.uid:
            del self._uid_of_name[meta.namespace, meta.name]

    def _shown_change(self, kind: str, shadow_pod: ShadowPod) -> Changed:
        """A change that the server does not know of; a watch goes on from the last that it does."""
        shadow_pod.edition += 1
        pod = shadow_pod.shown()
        return Change(kind, (pod.metadata.namespace, pod.metadata.name), pod, self._version)

    # ----- the report

    def _note_nodes(self, told: Listed[Any]) -> None:
        nodes = {each.metadata.name: each for each in told.objects if isinstance(each, Node)}
        for name in [name for name in self.tally.nodes if nodes and name not in nodes]:
            self.tally.update_node(name, None)
        for name, node in nodes.items():
            self.tally.update_node(name, node)

    def _note_node(self, change: Change[Any]) -> None:
        if isinstance(change.object, Node):
            gone = change.type == "DELETED"
            self.tally.update_node(change.object.metadata.name, None if gone else change.object)

    async def _report_again(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(REPORTS_EVERY_S)

    def _tell(self) -> None:
        self.tally.advance(self._clock())
        self._report(self.tally)
