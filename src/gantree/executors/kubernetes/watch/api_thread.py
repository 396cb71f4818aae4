"""The API thread: an event loop with the reflectors and the writes.

What it sees goes into a queue, in the order in which it was seen; the controller's thread takes it from there. Nothing
is decided on this thread, and nothing of it is shared but that queue.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from gantree.executors.kubernetes.apiserver.client import ApiError, Client, Key, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.device_objects import (
    CLAIMS,
    CLASSES,
    SLICES,
    ResourceClaim,
)
from gantree.executors.kubernetes.apiserver.objects import Group, JobObject, ManagedGroup, Node
from gantree.executors.kubernetes.apiserver.reflector import Reflector, all_synced
from gantree.executors.kubernetes.apiserver.volume_objects import NAMESPACES, OF_VOLUMES
from gantree.executors.kubernetes.constraints.volume_writes import Provision
from gantree.executors.kubernetes.nodes.topologies import TOPOLOGY_KINDS
from gantree.executors.kubernetes.nodes.zones import ZONES, NodeZones
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.watch.api_writes import ApiWrites
from gantree.executors.kubernetes.watch.discovery import (
    OWN_KINDS,
    WatchedKinds,
    has_devices,
    made,
    served,
    served_by_now,
)
from gantree.executors.kubernetes.watch.loop_thread import LoopThread
from gantree.executors.kubernetes.workloads.gang_owners import JOB
from gantree.executors.kubernetes.workloads.pod_groups import CORE
from gantree.executors.kubernetes.workloads.serving import GANGSERVICE
from gantree.executors.kubernetes.writes.writes import (
    PODS,
    Binding,
    StatusMessage,
)
from gantree.model.errors import Unreachable

NODES: Resource[Node] = Resource("api/v1/nodes", Node)
Listed = tuple[tuple[str, Resource[Any]], ...]
"""Resources, each with the noun as which its objects are seen."""
OF_ANY_SERVER: Listed = (
    ("namespace", NAMESPACES),
    *(("volume", each) for each in OF_VOLUMES),
)
"""Beside nodes and pods: what every server has, so that it is listed while it is asked for the rest."""
OF_DEVICES: Listed = (
    ("slice", SLICES),
    ("class", CLASSES),
    ("claim", CLAIMS),
)
TYPE_OF_KIND: Mapping[GroupKind, type[Group]] = {
    JOB: JobObject,
    ZONES: NodeZones,
    GANGSERVICE: ManagedGroup,
}
"""Kinds that are read into more, or less, than a group."""
SYNC_WITHIN_S = 60.0
LOOKS_AGAIN_S = 30.0
"""Discovery is repeated so often at least: definitions are installed and removed while this runs."""
LOOKS_FOR_OWN_S = 4.0
"""That of gantree's own kinds, while one is missing: whoever installs its definition makes an object next."""
PACE_S = 0.01
"""The controller is woken so often at most, as each poll has a fixed cost. The first change after a pause wakes it at
once."""

log = logging.getLogger(__name__)

T = TypeVar("T")
MakeClient = Callable[[Connection, Callable[[], bool]], Client]
Seen = tuple[str, Any, Any, Any]
"""What was seen: (noun, key, before, after) of a node, pod, namespace, volume, slice, class or claim; ("bound", what
came of it, None, None); ("answer", (what takes it, why not), None, None); ("group" | "topology", (kind, key), before,
after)."""


class ApiThread:
    """Starts the thread; `wake` is called from it soon after anything was seen."""

    def __init__(
        self,
        connection: Connection,
        wake: Callable[[], None],
        leads: Callable[[], bool] = lambda: True,
        nodes: Resource[Node] = NODES,
        make_client: MakeClient = Client,
    ) -> None:
        """wake lets the controller look at once. leads says whether we may write, now; asked on any thread.

        nodes are those that are ours.
        """
        self.seen: deque[Seen] = deque()
        self.leads = leads
        self.wake = wake
        self._connection = connection
        self._thread = LoopThread("kubernetes", self._broke)
        self._client: Client | None = None
        self._make_client = make_client
        self._always: Listed = (("pod", PODS), ("node", nodes), *OF_ANY_SERVER)
        self._reflectors: list[Reflector[Any]] = []
        self._watched = WatchedKinds(self._watch_kind)
        self._made: dict[GroupKind, str | None] = {}
        self._is_waking, self._next_wake_at = False, 0.0
        self._has_devices = False
        self._writes: ApiWrites | None = None

    def start(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Begin to watch, and wait until everything was listed once; meanwhile is done while the server lists.

        Raises Unreachable where the server does not answer, refuses, or lists for too long.
        """
        self._thread.start()
        try:
            begun = self._thread.run(self._begin())
            meanwhile()
            begun.result(SYNC_WITHIN_S)
        except TimeoutError:
            trouble = next((each.trouble for each in self._reflectors if each.trouble), "")
            self.close()
            raise Unreachable(
                f"{self._connection.server}: not everything was listed within {SYNC_WITHIN_S:g} s. {trouble}"
            ) from None
        except ApiError as error:
            self.close()
            raise Unreachable(f"{self._connection.server}: {error}") from error
        except BaseException:
            self.close()
            raise

    def bind(
        self, job: str, attempt: int, bindings: Sequence[Binding], first: Sequence[Provision] = ()
    ) -> None:
        """Bind pods; what came of it is seen as ("bound", ...). Safe from any thread.

        first: volumes that are made before any of them is bound.
        """
        self._thread.call(lambda: self._writer().bind(job, attempt, bindings, first))

    def take_back(self, claim: ResourceClaim, pod: str) -> None:
        """A claim is not for the pod of this uid any more. Safe from any thread."""
        self._thread.spawn(self._writer().take_back(claim, pod))

    def delete(self, namespace: str, name: str, uid: str, grace_s: float | None) -> None:
        """Delete a pod. Safe from any thread; the caller repeats it while the pod exists."""
        self._thread.spawn(self._writer().delete(namespace, name, uid, grace_s))

    def write(self, work: Callable[[Client], Coroutine[Any, Any, str]]) -> None:
        """Have something written that answers "" or why it was not done. Safe from any thread."""
        self._thread.spawn(self._writer().write(work))

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Have something read or written whose outcome somebody waits for. Safe from any thread."""
        assert self._client is not None, "not started"
        return self._thread.run(work(self._client))

    def status_of_group(self, key: tuple[str, str, str]) -> str | None:
        """Where the status of a gang's group is written, if it is of a kind that says whether it was scheduled."""
        namespace, name, group = key
        version = self._watched.versions.get(CORE)
        if group != CORE.group or version is None:
            return None
        resource = Resource(CORE.path(version), Group)
        return f"{resource.of_object(namespace, name)}/status"

    def version_of(self, kind: GroupKind) -> str | None:
        """The version of a kind of which we make objects; None where it is not served."""
        return self._made.get(kind) or self._watched.versions.get(kind)

    def report_status(self, message: StatusMessage) -> None:
        """Tell pods why they wait; a few at a time, behind everything else. Safe from any thread."""
        self._thread.spawn(self._writer().report_status(message))

    def request(self, method: str, path: str, body: object, kind: str) -> None:
        """Write something that is asked for again while it is not there. Safe from any thread."""
        self._thread.spawn(self._writer().request(method, path, body, kind))

    def create(self, path: str, body: object, on_refused: Callable[[str], None]) -> None:
        """Make an object; where that is refused, ("answer", (on_refused, why)) is seen. Safe from any thread."""
        self._thread.spawn(self._writer().create(path, body, on_refused))

    def create_owned(
        self, path: str, body: Mapping[str, Any], on_answer: Callable[[str], None]
    ) -> None:
        """Make an object unless its owner has it: ("answer", (on_answer, why not)) is seen. Safe from any thread."""
        self._thread.spawn(self._writer().create_owned(path, body, on_answer))

    def _writer(self) -> ApiWrites:
        assert self._writes is not None, "not started"
        return self._writes

    def _report_result(self, noun: str, result: Any) -> None:
        self._report((noun, result, None, None))

    @property
    def trouble(self) -> str | None:
        """Why something is not watched at the moment."""
        return next((each.trouble for each in list(self._reflectors) if each.trouble), None)

    def close(self) -> None:
        """End the thread and its connections; what runs goes on running."""
        if not self._thread.close(self._end):
            log.warning("the thread of %s does not end; it is left behind", self._connection.server)

    async def _end(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _begin(self) -> None:
        self._client = client = self._make_client(self._connection, self.leads)
        self._writes = ApiWrites(
            client, self._thread, self._broke, self._report_result, self._connection.namespace
        )
        for noun, resource in self._always:
            self._watch(Reflector(client, resource, self._teller(noun)))
        are_devices, versions = await asyncio.gather(has_devices(client), served(client))
        self._watch_devices(are_there=are_devices)
        self._watched.follow(versions)
        self._made = await made(client)
        await all_synced(self._reflectors)
        self._thread.keep(asyncio.ensure_future(self._look_again(client)))

    async def _look_again(self, client: Client) -> None:
        """From time to time ask what is served by now, until the end; sooner for gantree's own kinds that are not."""
        all_due = self._thread.loop.time() + _some(LOOKS_AGAIN_S)
        while True:
            await asyncio.sleep(_some(min(LOOKS_AGAIN_S, LOOKS_FOR_OWN_S)))
            try:
                if self._thread.loop.time() >= all_due:
                    all_due = self._thread.loop.time() + _some(LOOKS_AGAIN_S)
                    await self._look_for_all(client)
                elif missing := [each for each in OWN_KINDS if each not in self._watched.versions]:
                    known = self._watched.versions
                    self._watched.add(await served_by_now(client, known, missing))
            except (ApiError, Unreachable) as error:
                log.debug("what is served was not told: %s", error)

    async def _look_for_all(self, client: Client) -> None:
        self._watched.follow(await served_by_now(client, self._watched.versions))
        self._made = await made(client)
        if not self._has_devices:
            self._watch_devices(are_there=await has_devices(client))

    def _watch_devices(self, *, are_there: bool) -> None:
        assert self._client is not None, "not started"
        self._has_devices = are_there
        for noun, resource in OF_DEVICES if are_there else ():
            self._watch(Reflector(self._client, resource, self._teller(noun)))

    def _watch_kind(
        self, kind: GroupKind, version: str, copy: dict[Key, Any]
    ) -> tuple[Reflector[Any], Callable[[], None]]:
        """Watch the objects of a kind, of which a copy is known; the second is called to end it."""
        assert self._client is not None, "not started"
        objects = Resource(kind.path(version), TYPE_OF_KIND.get(kind, Group))
        noun = "topology" if kind in TOPOLOGY_KINDS else "group"
        reflector = Reflector(self._client, objects, self._group_teller(noun, kind), copy)
        task = self._watch(reflector)

        def end() -> None:
            task.cancel()
            self._reflectors.remove(reflector)

        return reflector, end

    def _watch(self, reflector: Reflector[Any]) -> "asyncio.Task[None]":
        self._reflectors.append(reflector)
        task = asyncio.ensure_future(reflector.run())
        self._thread.keep(task)
        return task

    def _broke(self, bug: BaseException) -> None:
        log.critical("the link to %s broke", self._connection.server, exc_info=bug)
        self._report(("broken", bug, None, None))

    def _teller(self, noun: str) -> Callable[[Key, Any, Any], None]:
        return lambda key, before, after: self._report((noun, key, before, after))

    def _group_teller(self, noun: str, kind: GroupKind) -> Callable[[Key, Any, Any], None]:
        return lambda key, before, after: self._report((noun, (kind, key), before, after))

    def _report(self, seen: Seen) -> None:
        self.seen.append(seen)
        if not self._is_waking:
            self._is_waking = True
            self._thread.loop.call_at(self._next_wake_at, self._wake)

    def _wake(self) -> None:
        self._is_waking, self._next_wake_at = False, self._thread.loop.time() + PACE_S
        self.wake()


def _some(seconds: float) -> float:
    """A time up to so long: of several processes not all ask at once."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
