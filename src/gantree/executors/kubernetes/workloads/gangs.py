"""Groups pending pods into gangs, and makes a job of each gang. Pure: pods and groups in, jobs out.

A gang is whole as soon as there are as many pods as its group asks for, of each role if it says so; all that wait then
are its members. Pods of one role and shape are one role of the job. Members are numbered role by role, in a role by the
index of their Job and their completion index, else by the numbers in their names, so that rank 0 is where frameworks
expect it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gantree.executors.kubernetes.apiserver.objects import Claimed, Pod
from gantree.executors.kubernetes.pods.checkpoint_protocol import checkpoint_of
from gantree.executors.kubernetes.pods.gang_spec import GangSpec, parsed_count
from gantree.executors.kubernetes.pods.link_check import check_of_pods
from gantree.executors.kubernetes.pods.shapes import PodRequest, pod_request
from gantree.executors.kubernetes.pods.templates import kept_of, once_per_template
from gantree.executors.kubernetes.workloads.composite_groups import is_composite
from gantree.executors.kubernetes.workloads.gang_labels import gang_spec_of_pod, over
from gantree.executors.kubernetes.workloads.gang_owners import (
    COMPLETION_INDEX,
    FIRST_ROLES,
    job_index_of,
    role_of,
)
from gantree.executors.kubernetes.workloads.gangjob import INDEX, PROCESSES
from gantree.executors.kubernetes.workloads.keys import Key, key_alone, part_of
from gantree.model.jobs import Job, Restarts, Role, Slices, TopologySpec
from gantree.model.values import quick

INDEX_KEYS = (
    COMPLETION_INDEX,
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "grove.io/podclique-pod-index",
    INDEX,
    "apps.kubernetes.io/pod-index",
)
"""Labels and annotations that number the pods of one owner."""
DEFAULT_QUEUE, NO_CLASS = "default", 0
"""Of pods that name none. Kubernetes gives them priority 0; a PriorityClass of 10 is above that."""
BUT_NAME = tuple(field.name for field in fields(Job))[1:]
"""What jobs of one template have in common."""
RESTARTS = Restarts(limit=1_000_000)
"""Of a gang that names none: its controller decides whether there are new pods, not gantree."""

_DIGITS = re.compile(r"([0-9]+)")


@quick
@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together: terms of their group, roles with their pods in member order, terms of each role."""

    key: Key
    spec: GangSpec
    roles: tuple[tuple[Role, tuple[Pod, ...]], ...]
    unknown: tuple[str, ...]
    of_role: tuple[GangSpec, ...] = ()

    @property
    def blocked(self) -> Claimed | None:
        """What keeps it from being handed in as it is, if anything does."""
        told = (pod.claimed for pod in self.pods)
        return next((each for each in told if each is not None and each.blocked), None)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All its pods, in member order."""
        if len(self.roles) == 1:
            return self.roles[0][1]
        return tuple(pod for _, pods in self.roles for pod in pods)

    @property
    def is_whole(self) -> bool:
        """Whether all pods are there that must start together."""
        pods = self.pods
        if len(pods) < self.spec.members or not self.spec.roles or part_of(self.key):
            return len(pods) >= self.spec.members
        there = Counter(_role_in(self.key, pod) for pod in pods)
        return all(there[role.name.lower()] >= role.members for role in self.spec.roles)


def with_pod(gang_spec: GangSpec | None, pod: Pod) -> GangSpec:
    """What a group asks for, and where it is silent what its pods do."""
    of_pod = gang_spec_of_pod(pod)
    of_pod = replace(of_pod, priority=pod.spec.priority or of_pod.priority)
    return of_pod if gang_spec is None else over(gang_spec, of_pod)


def gang_of(key: Key, gang_spec: GangSpec | None, pods: Sequence[Pod]) -> Gang:
    """The gang of pods of one key, at least one."""
    if gang_spec is not None or len(pods) > 1 or part_of(key):
        return _gang_of(key, gang_spec, pods)
    alike = _gang_of_one(pods[0])
    roles = ((alike.roles[0][0], tuple(pods)),)
    return Gang(key, alike.spec, roles, alike.unknown, alike.of_role)


@once_per_template
def _gang_of_one(pod: Pod) -> Gang:
    """A pod without any group as a gang; but for names all of its template are the same."""
    return _gang_of(key_alone(pod), None, [pod])


def _gang_of(key: Key, gang_spec: GangSpec | None, pods: Sequence[Pod]) -> Gang:
    ordered = in_order(pods)
    asked = [pod_request(pod) for pod in ordered]
    roles = _roles(key, ordered, asked)
    whole = with_pod(gang_spec, ordered[0])
    for _, (first, *_foreign_pods) in roles[1:]:
        whole = with_pod(whole, first)
    whole = replace(whole, members=whole.members_of(part_of(key)))
    unknown = dict.fromkeys((*whole.unknown, *(word for each in asked for word in each.unknown)))
    of_role = tuple(gang_spec_of_pod(members[0]) for _, members in roles) if whole.by_role else ()
    return Gang(key, whole, roles, tuple(unknown), of_role)


def job_of(
    gang: Gang, tier: Callable[[str], str | None], owner: str = ""
) -> tuple[Job, tuple[str, ...], tuple[str, ...]]:
    """A gang as a job, and what it asks for that cannot be had: tiers that the site does not have.

    First those that are required, for which it must not start, then those that are preferred. tier gives the tier that
    a word means, None where it means none.
    """
    namespace, name, _ = gang.key
    kept, of_group = kept_of(gang.pods[0]), gang.spec
    known: tuple[GangSpec, tuple[Any, ...]] | None = kept.get("job")
    if known is not None and known[0] is of_group:
        return Job(f"{namespace}/{name}", *known[1]), (), ()
    job, barred, lost = _job_of(gang, tier, owner)
    if len(gang.pods) == 1 and not of_group.has_topology:
        kept["job"] = (of_group, tuple(getattr(job, field) for field in BUT_NAME))
    return job, barred, lost


def _job_of(
    gang: Gang, tier: Callable[[str], str | None], owner: str
) -> tuple[Job, tuple[str, ...], tuple[str, ...]]:
    gang_spec, is_split = gang.spec, len(gang.of_role) > 1
    asked = [] if is_split else [gang_spec]
    topology = TopologySpec() if is_split else _topology(gang_spec, tier)
    roles = []
    for number, (role, pods) in enumerate(gang.roles):
        own = gang.of_role[number] if is_split else _of_role(gang_spec, _role_in(gang.key, pods[0]))
        of_role = _topology(own, tier, role.name)
        topology = replace(topology, slices=(*topology.slices, *of_role.slices))
        roles.append(replace(role, topology=replace(of_role, slices=())))
        asked.append(own)
    elastic = gang_spec.elastic if len(roles) == 1 else None
    if elastic is not None and gang_spec.size is not None:
        roles[0] = replace(roles[0], members=gang_spec.size)
    barred = _lost(tier, [word for each in asked for word in (each.required, each.slice_required)])
    lost = _lost(tier, [each.preferred for each in asked])
    namespace, name, _ = gang.key
    job = Job(
        name=f"{namespace}/{name}",
        roles=tuple(roles),
        queue=gang_spec.queue or DEFAULT_QUEUE,
        priority=NO_CLASS if gang_spec.priority is None else gang_spec.priority,
        topology=topology,
        restarts=_restarts(gang_spec),
        user=owner,
        preemptible=gang_spec.preemptible is not False,
        time_limit_s=gang_spec.time_limit_s or _time_limit_s(gang.pods),
        checkpoint=checkpoint_of(gang.pods),
        check=check_of_pods(gang.pods),
        elastic=elastic,
        project=gang_spec.project,
        assignment=gang_spec.assignment,
    )
    return job, barred, lost


def _restarts(gang_spec: GangSpec) -> Restarts:
    restarts = gang_spec.restarts or RESTARTS
    return replace(restarts, replace_s=gang_spec.replace_s or restarts.replace_s or None)


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """Pods of a gang in member order; one alone needs no place."""
    there = list(pods)
    return sorted(there, key=order_of) if len(there) > 1 else there


def order_of(pod: Pod) -> tuple[int, str, float, float, list[int | str]]:
    """Where a pod stands in its gang: role, index of its Job, its own index, then its name, numbers as numbers."""
    told = {**pod.metadata.labels, **pod.metadata.annotations}
    index = next((told[key] for key in INDEX_KEYS if _is_index(told.get(key, ""))), None)
    words: list[int | str] = [
        int(part) if part.isdecimal() else part for part in _DIGITS.split(pod.metadata.name)
    ]
    role, job = role_of(pod), job_index_of(pod)
    first = FIRST_ROLES.index(role) if role in FIRST_ROLES else len(FIRST_ROLES)
    is_of_job_set = job is not None
    return (
        0 if is_of_job_set else first,
        "" if is_of_job_set else role,
        0.0 if job is None else job,
        float("inf") if index is None else int(index),
        words,
    )


def _is_index(said: str) -> bool:
    return said.isascii() and said.isdecimal() and len(said) < 10


def _topology(
    gang_spec: GangSpec, tier: Callable[[str], str | None], role: str | None = None
) -> TopologySpec:
    """The topology request of a gang, without tiers that the site lacks. role: slices are of this role alone."""
    size, slice_tier = gang_spec.slice_members, _tier(tier, gang_spec.slice_required)
    return TopologySpec(
        required=_tier(tier, gang_spec.required),
        preferred=_tier(tier, gang_spec.preferred),
        slices=(Slices(size, slice_tier, role),) if size and slice_tier else (),
    )


def _tier(tier: Callable[[str], str | None], word: str | None) -> str | None:
    return tier(word) if word else None


def _lost(tier: Callable[[str], str | None], words: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(word for word in dict.fromkeys(words) if word and not tier(word))


def topology_in_words(word: str) -> str:
    """What of a request the site may lack."""
    return f"topology {word!r}"


def _role_in(key: Key, pod: Pod) -> str:
    """The role of a pod: in a composite its group, else what its controller says."""
    group = pod.spec.scheduling_group
    return group.pod_group_name if is_composite(key) and group is not None else role_of(pod)


def _of_role(gang_spec: GangSpec, name: str) -> GangSpec:
    """What a group asks for a role by itself."""
    own = (role for role in gang_spec.roles if role.name.lower() == name)
    return next(
        (GangSpec(required=each.required, preferred=each.preferred) for each in own), GangSpec()
    )


def _roles(
    key: Key, pods: Sequence[Pod], asked: Sequence[PodRequest]
) -> tuple[tuple[Role, tuple[Pod, ...]], ...]:
    """Runs of pods of one role and shape."""
    alike: dict[tuple[str, PodRequest, int], list[Pod]] = {}
    for pod, each in zip(pods, asked, strict=True):
        kind = (_role_in(key, pod), PodRequest(each.shape), processes_of(pod))
        alike.setdefault(kind, []).append(pod)
    return tuple(
        (Role(name, len(members), each.shape, processes), tuple(members))
        for name, ((_, each, processes), members) in zip(
            _names([role for role, _, _ in alike]), alike.items(), strict=True
        )
    )


def _names(words: Sequence[str]) -> list[str]:
    """Return a name for each role: that of the pods' controller, with a number if several shapes have one name."""
    if len(words) == 1:
        return [words[0] or "worker"]
    often = Counter(words)
    seen: Counter[str] = Counter()
    names = []
    for word in words:
        is_one = word and often[word] == 1
        names.append(word if is_one else f"{word or 'role'}{seen[word]}")
        seen[word] += 1
    return names


def processes_of(pod: Pod) -> int:
    """How many ranks a pod has."""
    return parsed_count(pod.metadata.annotations.get(PROCESSES)) or 1


def _time_limit_s(pods: Sequence[Pod]) -> float | None:
    """The kubelet ends pods at their deadline; a gang is over with the first of them."""
    limits = [pod.spec.active_deadline_seconds for pod in pods]
    told = [float(limit) for limit in limits if limit]
    return min(told) if len(told) == len(limits) else None
