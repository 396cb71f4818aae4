"""How the gangs of a namespace are, from their pods alone: what `kubectl gantree why` and `jobs` print.

It needs the rights to list pods and events of that namespace, and none on gantree: conditions, events and annotations
of the pods say what gantree decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from gantree.executors.kubernetes.apiserver.client import ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Metadata, Object, Pod
from gantree.executors.kubernetes.pods.annotations import DOMAIN, JOB
from gantree.executors.kubernetes.workloads.gang_labels import gang_spec_of_pod
from gantree.executors.kubernetes.workloads.keys import Key, key_of

RUNNING, STARTING, WAITING, ENDED = "running", "starting", "waiting", "ended"
FORBIDDEN = 403
COMPONENT = "gantree"


class Source(Object, frozen=True):
    """Who wrote an event."""

    component: str = ""


class ObjectReference(Object, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class EventObject(Object, frozen=True):
    """An event of a namespace."""

    metadata: Metadata
    involved_object: ObjectReference = ObjectReference()
    type: str = "Normal"
    reason: str = ""
    message: str = ""
    source: Source = Source()
    last_timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class GangReport:
    """A gang: its pods, and what gantree has said about them. events: the newest last. queue: as the pods name it."""

    namespace: str
    name: str
    queue: str
    job: str
    state: str
    pods: tuple[str, ...]
    bound: int
    nodes: tuple[str, ...]
    domain: str
    why: str
    events: tuple[EventObject, ...] = ()

    @property
    def full_name(self) -> str:
        """Its name in gantree."""
        return f"{self.namespace}/{self.name}"


async def gang_reports(
    connection: Connection, namespace: str, scheduler: str, *, with_events: bool = False
) -> list[GangReport]:
    """All gangs of a namespace, in order of their names; all namespaces if it is "". Raises ApiError, Unreachable."""
    client = Client(connection)
    try:
        pods = await _pods(client, namespace, scheduler)
        events = await _events(client, namespace) if with_events else ()
    finally:
        await client.close()
    return reports_of(pods, events)


def reports_of(pods: Sequence[Pod], events: Sequence[EventObject] = ()) -> list[GangReport]:
    """The gangs of pods."""
    gangs: dict[Key, list[Pod]] = {}
    for pod in pods:
        gangs.setdefault(key_of(pod), []).append(pod)
    of_pod: dict[str, list[EventObject]] = {}
    for event in sorted(events, key=lambda each: each.last_timestamp or ""):
        if event.source.component == COMPONENT:
            of_pod.setdefault(event.involved_object.uid, []).append(event)
    return [_report(key, gangs[key], of_pod) for key in sorted(gangs)]


def found(reports: Sequence[GangReport], name: str) -> list[GangReport]:
    """Those of the gang of a name, or else of the pod of that name."""
    gangs = [each for each in reports if name in (each.name, each.job)]
    return gangs or [each for each in reports if name in each.pods]


def _report(key: Key, pods: list[Pod], events: Mapping[str, Sequence[EventObject]]) -> GangReport:
    ordered = sorted(pods, key=lambda pod: pod.metadata.name)
    named = [pod.metadata.annotations for pod in ordered if JOB in pod.metadata.annotations]
    waiting = [pod for pod in ordered if not pod.spec.node_name and not pod.has_ended]
    return GangReport(
        key[0],
        key[1],
        gang_spec_of_pod(ordered[0]).queue or "",
        named[0][JOB] if named else "",
        _state(ordered, waiting),
        tuple(pod.metadata.name for pod in ordered),
        sum(bool(pod.spec.node_name) for pod in ordered),
        tuple(dict.fromkeys(pod.spec.node_name for pod in ordered if pod.spec.node_name)),
        next((each[DOMAIN] for each in named if DOMAIN in each), ""),
        next(filter(None, map(_why, waiting)), ""),
        tuple(event for pod in ordered for event in events.get(pod.metadata.uid, ())),
    )


def _state(pods: Sequence[Pod], waiting: Sequence[Pod]) -> str:
    if all(pod.has_ended for pod in pods):
        return ENDED
    if waiting:
        return WAITING
    left = [pod for pod in pods if not pod.has_ended]
    return RUNNING if all(pod.status.phase == "Running" for pod in left) else STARTING


def _why(pod: Pod) -> str:
    """What the condition PodScheduled says while it is false."""
    told = (each for each in pod.status.conditions if each.type == "PodScheduled")
    return next((each.message for each in told if each.status == "False"), "")


async def _pods(client: Client, namespace: str, scheduler: str) -> list[Pod]:
    selectors = {"fieldSelector": f"spec.schedulerName={scheduler}"}
    return (await client.list(Resource(_path("pods", namespace), Pod, selectors))).objects


async def _events(client: Client, namespace: str) -> list[EventObject]:
    """Those about pods; none where they may not be listed."""
    selectors = {"fieldSelector": f"involvedObject.kind=Pod,source={COMPONENT}"}
    try:
        where = Resource(_path("events", namespace), EventObject, selectors)
        return (await client.list(where)).objects
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return []


def _path(plural: str, namespace: str) -> str:
    within = f"namespaces/{quote(namespace)}/" if namespace else ""
    return f"api/v1/{within}{plural}"
