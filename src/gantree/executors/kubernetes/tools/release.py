"""Gives the waiting pods of switched namespaces back to the scheduler that they named: `gantree kubernetes release`.

The schedulerName of a pod cannot be changed, so its controller has to make another one. A pod is evicted only as the
version that was read: one that gantree has bound since then stays. A deleted pod counts as a failure of its Job, so a
Job whose pods all wait is suspended until they are gone, and resumed. The annotation of such a Job lets a later run
resume it, should this one be interrupted.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gantree.executors.kubernetes.apiserver.client import MERGE, ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Metadata, Object, OwnerReference
from gantree.model.errors import BadInput

SWITCH = "gantree.io/scheduler"
"""The label of a namespace whose new pods are given to the scheduler of that name."""
BEFORE = "gantree.io/scheduler-before"
"""The annotation of a pod that was given to gantree: the scheduler that it named."""
RELEASED = "gantree.io/released"
"""The annotation of a Job that is suspended so that its pods are made again."""
AGAIN_S = 1.0
WITHIN_S = 120.0


class PodSpec(Object, frozen=True):
    """Where a pod goes, and who says so."""

    node_name: str = ""
    scheduler_name: str = ""


class PodStatus(Object, frozen=True):
    """Whether it has ended."""

    phase: str = "Pending"


class SwitchedPod(Object, frozen=True):
    """A pod, as far as this needs it."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def controller(self) -> OwnerReference | None:
        """What makes it again."""
        return next((each for each in self.metadata.owner_references if each.controller), None)

    @property
    def full_name(self) -> str:
        """Its namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class JobSpec(Object, frozen=True):
    """Whether its pods may exist."""

    suspend: bool = False


class SwitchedJob(Object, frozen=True):
    """A Job of batch/v1."""

    metadata: Metadata
    spec: JobSpec = JobSpec()


class Namespace(Object, frozen=True):
    """A namespace with its labels."""

    metadata: Metadata


PODS: Resource[SwitchedPod] = Resource("api/v1/pods", SwitchedPod)
JOBS: Resource[SwitchedJob] = Resource("apis/batch/v1/jobs", SwitchedJob)
NAMESPACES: Resource[Namespace] = Resource("api/v1/namespaces", Namespace)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do next in a namespace. left: pods that stay with gantree, each with the reason."""

    evict: tuple[SwitchedPod, ...] = ()
    suspend: tuple[SwitchedJob, ...] = ()
    resume: tuple[SwitchedJob, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    is_waiting: bool = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be done or waited for."""
        return not (self.evict or self.suspend or self.resume or self.is_waiting)


@dataclass(slots=True)
class Released:
    """What was done in a namespace: names of pods evicted, of Jobs restarted, and pods left, each with the reason."""

    namespace: str
    evicted: list[str] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    left: tuple[tuple[str, str], ...] = ()


def plan_of(pods: Sequence[SwitchedPod], jobs: Sequence[SwitchedJob], scheduler: str) -> Plan:
    """What to do about the pods and Jobs of a namespace now."""
    job_of = {job.metadata.uid: job for job in jobs}
    lives, bound = _jobs_with_pods(pods)
    evict, suspend, left = [], dict[str, SwitchedJob](), []
    for pod in pods:
        if not _waits(pod, scheduler):
            continue
        controller = pod.controller
        job = job_of.get(controller.uid) if controller else None
        if why := _why_left(controller, bound):
            left.append((pod.full_name, why))
        elif job is not None:
            suspend[job.metadata.uid] = job
        else:
            evict.append(pod)
    marked = [job for job in jobs if job.spec.suspend and RELEASED in job.metadata.annotations]
    return Plan(
        tuple(evict),
        tuple(job for job in suspend.values() if not job.spec.suspend),
        tuple(job for job in marked if job.metadata.uid not in lives),
        tuple(left),
        is_waiting=any(job.metadata.uid in lives for job in marked),
    )


def _jobs_with_pods(pods: Iterable[SwitchedPod]) -> tuple[frozenset[str], frozenset[str]]:
    """Uids of controllers of which a pod has not ended, and of those of which such a pod has a node."""
    owned = [(pod.controller.uid, pod) for pod in pods if pod.controller and not pod.has_ended]
    return frozenset(uid for uid, _ in owned), frozenset(
        uid for uid, pod in owned if pod.spec.node_name
    )


def _waits(pod: SwitchedPod, scheduler: str) -> bool:
    """Whether a pod was given to gantree and has no node yet."""
    is_there = not pod.spec.node_name and not pod.metadata.deletion_timestamp and not pod.has_ended
    return is_there and pod.spec.scheduler_name == scheduler and BEFORE in pod.metadata.annotations


def _why_left(controller: OwnerReference | None, bound: frozenset[str]) -> str:
    """Why a waiting pod stays with gantree; "" if it may go."""
    if controller is None:
        return "it has no controller that makes it again; delete it and create it again"
    if controller.kind == "Job" and controller.uid in bound:
        return f"other pods of Job {controller.name} have nodes, and a deleted pod counts as a failure of it"
    return ""


async def release(
    connection: Connection, names: Sequence[str], scheduler: str, *, of_all: bool = False
) -> list[Released]:
    """Take the label from namespaces and have their waiting pods made again. Raises BadInput, ApiError, Unreachable."""
    client = Client(connection)
    try:
        known = {each.metadata.name: each for each in (await client.list(NAMESPACES)).objects}
        if missing := [name for name in names if name not in known]:
            raise BadInput(f"there is no namespace {missing[0]!r}")
        chosen = [name for name, each in known.items() if _is_switched(each, scheduler)]
        chosen = chosen if of_all else list(dict.fromkeys(names))
        for name in chosen:
            if _is_switched(known[name], scheduler):
                body = {"metadata": {"labels": {SWITCH: None}}}
                await client.write("PATCH", NAMESPACES.of_object("", name), body, MERGE)
        return [await _released(client, name, scheduler) for name in chosen]
    finally:
        await client.close()


def _is_switched(namespace: Namespace, scheduler: str) -> bool:
    return namespace.metadata.labels.get(SWITCH) == scheduler


async def _released(client: Client, namespace: str, scheduler: str) -> Released:
    """Until nothing is left to do: API servers see the changed label a moment later, and may switch one more pod."""
    told, idle = Released(namespace), 0
    ends_at = asyncio.get_running_loop().time() + WITHIN_S
    while idle < 2 and asyncio.get_running_loop().time() < ends_at:
        plan = plan_of(
            await _of(client, PODS, namespace), await _of(client, JOBS, namespace), scheduler
        )
        told.left, idle = plan.left, idle + 1 if plan.is_done else 0
        for pod in plan.evict:
            if await _evicted(client, pod):
                told.evicted.append(pod.metadata.name)
        for job in plan.suspend:
            await _suspend(client, job, {RELEASED: "true"}, is_on=True)
        for job in plan.resume:
            await _suspend(client, job, {RELEASED: None}, is_on=False)
            told.restarted.append(job.metadata.name)
        if idle < 2:
            await asyncio.sleep(AGAIN_S)
    if idle < 2:
        told.left += ((namespace, f"not finished within {WITHIN_S:g} s; run this again"),)
    return told


async def _of(client: Client, kind: Resource[Any], namespace: str) -> list[Any]:
    here = Resource(kind.of_namespace(namespace), kind.type)
    return list((await client.list(here)).objects)


async def _evicted(client: Client, pod: SwitchedPod) -> bool:
    """Whether a pod was evicted: not if it has changed since it was read."""
    meta = pod.metadata
    options = {"preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version}}
    names = {"name": meta.name, "namespace": meta.namespace}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": names,
        "deleteOptions": options,
    }
    path = f"{PODS.of_object(meta.namespace, meta.name)}/eviction"
    return await _done(client, "POST", path, body)


async def _suspend(
    client: Client, job: SwitchedJob, mark: Mapping[str, str | None], *, is_on: bool
) -> None:
    meta = job.metadata
    path = JOBS.of_object(meta.namespace, meta.name)
    version = {"resourceVersion": meta.resource_version, "annotations": dict(mark)}
    await _done(client, "PATCH", path, {"metadata": version, "spec": {"suspend": is_on}}, MERGE)


async def _done(client: Client, method: str, path: str, body: object, *kind: str) -> bool:
    """Whether a write was done; one of an object that has changed or gone is not, and is planned again."""
    try:
        await client.write(method, path, body, *kind)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        return False
    return True
