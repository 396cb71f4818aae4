"""Adopts running gangs of gantree that are not on record, because the journal was lost or replaced.

Annotations of their pods say job, attempt, member and GPUs, so they are adopted instead of counted as foreign pods.
Queue, priority and topology are read again from the pods and the object of their group; a member holds what its pod
requests, and if no annotation says so, its claims say which GPUs it has. Usage, waiting times and moves of the past are
lost.

Gangs are adopted once after each start, before any other event, so that what they hold is not given away, and nothing
on record changes. A gang with a missing member stays foreign, and so does one that the core rejects. Users can write
annotations, too: they count only if they agree with the gang of the pod, and give no more than the pod has already.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.controllers.attempts.controller import AttemptController
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.pods.annotations import (
    DOMAIN,
    GPUS,
    NICS,
    MemberAnnotation,
    member_annotation,
)
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of, processes_of
from gantree.executors.kubernetes.workloads.keys import Key, key_alone
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods
from gantree.model.events import GangFound
from gantree.model.jobs import Job, Role, TopologySpec
from gantree.model.placements import FABRIC_TIER, Domain, MemberPlacement, Placement, Predicted

PATIENCE_S = 60.0
"""A gang that is not decided about for so long counts as foreign pods."""

log = logging.getLogger(__name__)

MemberPod = tuple[MemberAnnotation, Pod]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A gang that was reported: its attempt, its pods, and until when a decision is awaited."""

    attempt: int
    pods: tuple[Pod, ...]
    until: float


class Adoption:
    """Reports running gangs once after a start, and follows what is decided about them."""

    def __init__(
        self,
        scheduler: str,
        pending: PendingPods,
        members: AttemptController,
        allocator: Allocator,
        update_pod: Callable[[Pod], None],
    ) -> None:
        """scheduler is the schedulerName of pods that are ours; update_pod is called with pods that changed hands."""
        self._scheduler, self._pending, self._attempts = scheduler, pending, members
        self._allocator, self._update_pod = allocator, update_pod
        self._is_due = False
        self._unanswered: dict[str, _Pending] = {}

    def start(self) -> None:
        """Report gangs as soon as there is a site."""
        self._is_due = True

    def step(
        self,
        decided: LedgerView,
        site: SiteReading | None,
        gpus_of_node: Mapping[str, int],
        now: float,
    ) -> Iterator[GangFound]:
        """An event for each gang, in the first step after the start."""
        self._drop_rejected(decided, now)
        if not self._is_due or site is None or decided.site.description is None:
            return
        self._is_due = False
        for member_pods in _gangs(
            self._attempts.pods.values(), self._attempts, decided, self._scheduler
        ):
            event = self._event(member_pods, site, gpus_of_node, now)
            if event is not None:
                self._assign_pods(event, member_pods, now)
                yield event
        if self._unanswered:
            log.warning(
                "%d gangs run that no record knows, and are taken over: what they used before is not known",
                len(self._unanswered),
            )

    def _assign_pods(self, event: GangFound, member_pods: Sequence[MemberPod], now: float) -> None:
        pods = tuple(pod for _, pod in member_pods)
        key = self._key(event.job, pods)
        assert key is not None, "it was looked at"
        self._unanswered[event.job] = _Pending(event.attempt, pods, now + PATIENCE_S)
        self._pending.set_job(event.job, key)
        self._attempts.take_over(event.job, event.attempt, len(member_pods))
        for pod in pods:
            self._update_pod(pod)

    def _drop_rejected(self, decided: LedgerView, now: float) -> None:
        """Pods of rejected gangs are foreign again."""
        for job, unanswered in list(self._unanswered.items()):
            rejected_for = decided.rejection(job)
            if decided.job(job) is not None:
                del self._unanswered[job]
            elif rejected_for is not None or now >= unanswered.until:
                log.warning("%s was not taken over: %s", job, rejected_for or "no answer")
                del self._unanswered[job]
                self._pending.release_job(job)
                self._attempts.settle(job, unanswered.attempt)
                for pod in unanswered.pods:
                    if pod.metadata.uid in self._attempts.pods:
                        self._update_pod(self._attempts.pods[pod.metadata.uid])

    @property
    def unanswered(self) -> Iterable[str]:
        """Jobs that are not decided about yet."""
        return self._unanswered

    # ----- reading pods

    def _event(
        self,
        member_pods: Sequence[MemberPod],
        site: SiteReading,
        gpus_of_node: Mapping[str, int],
        now: float,
    ) -> GangFound | None:
        """The event for the pods of an attempt; None if their annotations are incomplete."""
        (annotation, _), pods = member_pods[0], [pod for _, pod in member_pods]
        key = self._key(annotation.job, pods)
        roles = _roles(member_pods)
        if key is None or roles is None:
            return None
        members = self._placed(member_pods, gpus_of_node)
        if members is None:
            return None
        gang = gang_of(key, self._pending.keys.spec_of(key), pods)
        spec, _, _ = job_of(gang, site.tier, key[0])
        return GangFound(
            id=f"{annotation.job}/{annotation.attempt}/found",
            observed_at=now,
            job=annotation.job,
            spec=_with_roles(spec, roles),
            attempt=annotation.attempt,
            placement=Placement(members, _domain(pods[0]), Predicted(0.0, ())),
        )

    def _key(self, job: str, pods: Sequence[Pod]) -> Key | None:
        """The gang that a job is by its id, if its pods are of that; one that came late stands alone."""
        keys = {self._pending.keys.of(pod) for pod in pods}
        if len(pods) == 1:
            keys.add(key_alone(pods[0]))
        found = [key for key in sorted(keys) if job.startswith(f"{'.'.join(key)}.")]
        is_one = len(keys) == 1 or len(pods) == 1
        if not found or not is_one or self._pending.job_of(found[0]) not in (None, job):
            return None
        return found[0]

    def _placed(
        self, member_pods: Sequence[MemberPod], gpus_of_node: Mapping[str, int]
    ) -> tuple[MemberPlacement, ...] | None:
        """The placements of the members; None if unknown, as for partitions that a kubelet chose."""
        number_in_role: dict[str, int] = {}
        found = []
        for annotation, pod in member_pods:
            shape, node = pod_request(pod).shape, pod.spec.node_name
            gpus = _gpus(pod) or (self._allocator.gpus_of(pod) if shape.gpus else ())
            is_told = len(gpus) == shape.gpus and all(g < gpus_of_node.get(node, 0) for g in gpus)
            if shape.part or not is_told or node not in gpus_of_node:
                return None
            number = number_in_role[annotation.role] = number_in_role.get(annotation.role, -1) + 1
            nics = tuple(filter(None, pod.metadata.annotations.get(NICS, "").split(",")))
            found.append(
                MemberPlacement(
                    role=annotation.role,
                    rank=number,
                    node=node,
                    gpus=gpus,
                    nics=nics,
                    cpus=shape.cpus,
                    memory_GiB=shape.memory_GiB,
                    devices=shape.devices,
                )
            )
        return tuple(found)


def _gangs(
    pods: Iterable[Pod], members: AttemptController, decided: LedgerView, scheduler: str
) -> Iterator[list[MemberPod]]:
    """The pods of each attempt that runs whole and that the ledger does not know, in member order."""
    of_job: dict[str, dict[int, list[MemberPod]]] = {}
    for pod in pods:
        annotation = member_annotation(pod.metadata.annotations)
        is_ours = pod.spec.scheduler_name == scheduler and pod.spec.node_name
        if annotation is None or not is_ours or members.has_member(pod.metadata.uid):
            continue
        if decided.job(annotation.job) is None and decided.rejection(annotation.job) is None:
            of_job.setdefault(annotation.job, {}).setdefault(annotation.attempt, []).append(
                (annotation, pod)
            )
    for job in sorted(of_job):
        member_pods = sorted(of_job[job][max(of_job[job])], key=lambda each: each[0].member)
        numbers = [annotation.member for annotation, _ in member_pods]
        is_whole = all(annotation.members == len(member_pods) for annotation, _ in member_pods)
        if is_whole and numbers == list(range(len(member_pods))) and not _is_over(member_pods):
            yield member_pods


def _is_over(member_pods: Sequence[MemberPod]) -> bool:
    return all(pod.has_ended for _, pod in member_pods)


def _roles(member_pods: Sequence[MemberPod]) -> list[Role] | None:
    """The roles that members have by their marks, in runs; None where those of one role are not alike."""
    roles: list[Role] = []
    for annotation, pod in member_pods:
        shape, count = pod_request(pod).shape, processes_of(pod)
        if not roles or roles[-1].name != annotation.role:
            roles.append(Role(annotation.role, 0, shape, count))
        if (roles[-1].shape, roles[-1].processes) != (shape, count):
            return None
        roles[-1] = replace(roles[-1], members=roles[-1].members + 1)
    return roles if len({role.name for role in roles}) == len(roles) else None


def _with_roles(spec: Job, roles: Sequence[Role]) -> Job:
    """A job with the roles that run, each with the topology of the role that it is, or is a part of."""
    told = {role.name: role.topology for role in spec.roles}
    known = tuple(
        replace(role, topology=told.get(role_of(role.name), TopologySpec())) for role in roles
    )
    return replace(spec, roles=known)


def _gpus(pod: Pod) -> tuple[int, ...]:
    words = pod.metadata.annotations.get(GPUS, "").split(",")
    return tuple(int(word) for word in words if word.isascii() and word.isdecimal())


def _domain(pod: Pod) -> Domain:
    tier, colon, name = pod.metadata.annotations.get(DOMAIN, "").partition(":")
    return Domain(tier, name) if colon else Domain(FABRIC_TIER, "")
