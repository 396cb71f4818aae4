"""Writes to the API server on behalf of an attempt: binding all its pods, deleting them.

The server checks neither capacity nor that a gang is whole; it refuses to bind a pod twice, or one that is not the pod
that was meant (its uid). A write whose answer was lost may have been done: then the pod itself is asked.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gantree.executors.kubernetes.apiserver.client import (
    JSON,
    LONGEST_WAIT_S,
    MERGE,
    STRATEGIC,
    ApiError,
    Client,
    Resource,
)
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.apiserver.post_queue import Error, PostQueue
from gantree.executors.kubernetes.devices.claim_writes import Grant, grant_all, take_back_all
from gantree.executors.kubernetes.pods.hived import isolation_of
from gantree.executors.kubernetes.workloads.pod_groups import scheduled_condition
from gantree.model.errors import Unreachable
from gantree.model.values import quick

PODS: Resource[Pod] = Resource("api/v1/pods", Pod)
AGAIN_S = 0.5
GIVE_UP_S = 30.0
"""After so long a binding that the server has neither taken nor refused counts as failed."""


@quick
@dataclass(frozen=True, slots=True)
class Binding:
    """The binding of a pod (by uid) to a node, with annotations, and the allocations of its claims."""

    namespace: str
    name: str
    uid: str
    node: str
    annotations: dict[str, str]
    grants: tuple[Grant, ...] = ()


def binding_of(pod: Pod, node: str, annotations: dict[str, str]) -> Binding:
    """The binding of a pod, with the annotations of its member."""
    meta = pod.metadata
    own = {**annotations, **isolation_of(pod, annotations)}
    return Binding(meta.namespace, meta.name, meta.uid, node, own)


@quick
@dataclass(frozen=True, slots=True)
class Bound:
    """What became of the bindings of an attempt: (uid, why) of each that failed."""

    job: str
    attempt: int
    failed: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """Why the pods (namespace, name) of a gang wait. uid is that of the first; group the path of its status, if any.

    is_warning: write it as an event alone. has_event: write an event at all.
    """

    pods: tuple[tuple[str, str], ...]
    uid: str
    reason: str
    sentence: str
    group: str | None = None
    is_warning: bool = False
    has_event: bool = True


Failed = tuple[tuple[str, str], ...]
"""(uid, why) of each pod that could not be bound."""


def bind_all(
    post_queue: PostQueue, bindings: Sequence[Binding], told: Callable[[Failed], None]
) -> None:
    """Bind pods at once; `told` is called once, with those that failed."""
    left, failed = len(bindings), dict[str, str]()

    def done(binding: Binding, why: str) -> None:
        nonlocal left
        left -= 1
        if why:
            failed[binding.uid] = why
        if not left:
            told(tuple((each.uid, failed[each.uid]) for each in bindings if each.uid in failed))

    for each in bindings:
        _Posted(post_queue, each, done).go()


async def bind_with_grants(post_queue: PostQueue, bindings: Sequence[Binding], home: str) -> Failed:
    """Bind pods at once, once all have what their claims are given.

    home is the namespace of the records of devices.
    """
    client, grants = post_queue.client, [each for one in bindings for each in one.grants]
    why = await grant_all(client, grants, home) if grants else ""
    if why:
        return tuple((each.uid, why) for each in bindings)
    bound: asyncio.Future[Failed] = asyncio.get_running_loop().create_future()
    bind_all(post_queue, bindings, bound.set_result)
    failed = await bound
    lost = {uid for uid, _ in failed}
    unbound = [each for each in bindings if each.uid in lost]
    if unbound:
        await take_back_all(client, [each for one in unbound for each in one.grants])
    return failed


@quick
@dataclass(frozen=True, slots=True)
class _Posted:
    """A binding in flight; done is called with "" or why it failed."""

    post_queue: PostQueue
    binding: Binding
    done: Callable[[Binding, str], None]

    def go(self) -> None:
        self.post_queue.post(_path(self.binding), _body(self.binding), self.answered)

    def answered(self, error: Error | None) -> None:
        if error is None:
            self.done(self.binding, "")
        else:
            self.post_queue.start(self.ask_again(error))

    async def ask_again(self, error: Error) -> None:
        self.done(self.binding, await _insist(self.post_queue.client, self.binding, error))


async def delete(client: Client, namespace: str, name: str, uid: str, grace_s: float | None) -> str:
    """Delete a pod, unless it is another of that name by now; "" if it is gone or going, else why not."""
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
        **({} if grace_s is None else {"gracePeriodSeconds": max(0, round(grace_s))}),
    }
    try:
        await client.write("DELETE", PODS.of_object(namespace, name), body)
    except ApiError as error:
        return "" if error.status in (404, 409) else str(error)
    except Unreachable as error:
        return str(error)
    return ""


async def write_status(client: Client, message: StatusMessage) -> str:
    """Write why pods wait to them and to their group, with an event; "" or the first error."""
    trouble = ""
    for namespace, name in () if message.is_warning else message.pods:
        path = f"{PODS.of_object(namespace, name)}/status"
        trouble = trouble or await _tried(client, "PATCH", path, _condition(message), STRATEGIC)
    if message.group is not None:
        body = _of_group(message, scheduled_condition(message.group))
        trouble = trouble or await _tried(client, "PATCH", message.group, body, MERGE)
    if message.pods and message.has_event:
        namespace = message.pods[0][0]
        path = f"api/v1/namespaces/{namespace}/events"
        trouble = trouble or await _tried(client, "POST", path, _event(message), JSON)
    return trouble


async def _tried(client: Client, method: str, path: str, body: object, kind: str) -> str:
    """ "" once it is written, or what it is about is gone; else why not."""
    try:
        await client.write(method, path, body, kind)
    except ApiError as error:
        return "" if error.status == 404 else str(error)
    except Unreachable as error:
        return str(error)
    return ""


def _condition(message: StatusMessage) -> dict[str, object]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message.sentence,
    }
    return {"status": {"conditions": [condition]}}


def _of_group(message: StatusMessage, kind: str) -> dict[str, object]:
    condition = {
        "type": kind,
        "status": "False",
        "reason": "Unschedulable",
        "message": message.sentence,
        "lastTransitionTime": _now(),
    }
    return {"status": {"conditions": [condition]}}


def _event(message: StatusMessage) -> dict[str, object]:
    namespace, name = message.pods[0]
    about = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": namespace,
        "name": name,
        "uid": message.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": namespace},
        "involvedObject": about,
        "type": "Warning" if message.is_warning else "Normal",
        "reason": message.reason,
        "message": message.sentence,
        "source": {"component": "gantree"},
        "firstTimestamp": _now(),
        "lastTimestamp": _now(),
        "count": 1,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _insist(client: Client, binding: Binding, error: Error) -> str:
    """Bind a pod that an error has kept from it so far; "" if it is bound as it should be, else why not."""
    deadline = asyncio.get_running_loop().time() + GIVE_UP_S
    while True:
        pause_s = AGAIN_S
        if isinstance(error, ApiError):
            if error.status == 409:
                return await _unless_bound(client, binding, error.message)
            if error.status < 500 and error.status != 429:
                return str(error)
            pause_s = AGAIN_S if error.wait_s is None else min(error.wait_s, LONGEST_WAIT_S)
        if asyncio.get_running_loop().time() >= deadline:
            return await _unless_bound(client, binding, str(error))
        await asyncio.sleep(pause_s)
        try:
            await client.write("POST", _path(binding), _body(binding))
            return ""
        except (ApiError, Unreachable) as retried:
            error = retried


async def _unless_bound(client: Client, binding: Binding, why: str) -> str:
    """Return "" if the pod is bound as intended, by a write whose answer was lost; else why it is not.

    It is asked for until the server answers: if it was taken for unbound, its room would be given to others. No other
    pod can be bound meanwhile either.
    """
    path = PODS.of_object(binding.namespace, binding.name)
    while True:
        try:
            pod = await client.get(path, Pod)
            break
        except ApiError as error:
            if error.status == 404:
                return f"{why}; {error}"
        except Unreachable:
            pass
        await asyncio.sleep(AGAIN_S)
    is_ours = pod.metadata.uid == binding.uid and pod.spec.node_name == binding.node
    marks = binding.annotations.items()
    return "" if is_ours and marks <= pod.metadata.annotations.items() else why


def _path(binding: Binding) -> str:
    return f"{PODS.of_object(binding.namespace, binding.name)}/binding"


def _body(binding: Binding) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": binding.name,
            "uid": binding.uid,
            "annotations": binding.annotations,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
    }
