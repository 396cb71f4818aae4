"""Pods that wait, gathered into gangs, and each gang as a job of ours. Pure: pods and groups in, jobs out.

A gang is whole as soon as there are as many pods as its group asks for; all that wait then are its members. Pods of one
shape are one role. Members are numbered by the completion index of their Job, else by the numbers in their names, so
that rank 0 is where frameworks expect it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gantree.executors.kubernetes.dialects import Terms, group_of, terms_of_pod
from gantree.executors.kubernetes.handshake import checkpoint_of
from gantree.executors.kubernetes.objects import Claimed, Pod, once_per_pod
from gantree.executors.kubernetes.shapes import Asked, asked_by
from gantree.model.jobs import Job, Restarts, Role, Shape, Slices, TopologyWish

INDEX_KEYS = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
"""Labels and annotations that number the pods of one owner."""
DEFAULT_QUEUE = "default"
FOR_EVER = 1_000_000
"""Restarts of a gang: its controller decides whether there are new pods, not gantree."""

_DIGITS = re.compile(r"([0-9]+)")

Key = tuple[str, str, str]
"""What holds a gang together: namespace, name, and the kind of group, or "pod" for one that stands alone."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together: terms of their group, roles with their pods in member order."""

    key: Key
    terms: Terms
    roles: tuple[tuple[Role, tuple[Pod, ...]], ...]
    unknown: tuple[str, ...]

    @property
    def blocked(self) -> Claimed | None:
        """What keeps it from being handed in as it is, if anything does."""
        told = (pod.claimed for pod in self.pods)
        return next((each for each in told if each is not None and each.blocked), None)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All its pods, in member order."""
        return tuple(pod for _, pods in self.roles for pod in pods)


@once_per_pod
def key_of(pod: Pod) -> Key:
    """The gang that a pod is of."""
    ref = group_of(pod)
    if ref is None:
        return pod.metadata.namespace, pod.metadata.name, "pod"
    return ref.namespace, ref.name, "gang" if ref.kind is None else ref.kind.group


def with_pod(terms: Terms | None, pod: Pod) -> Terms:
    """What a group asks for, and where it is silent what its pods do."""
    of_pod = terms_of_pod(pod)
    priority = pod.spec.priority or of_pod.priority
    if terms is None:
        return replace(of_pod, priority=priority)
    return Terms(
        terms.members,
        terms.queue or of_pod.queue,
        terms.priority if terms.priority is not None else priority,
        terms.required or of_pod.required,
        terms.preferred or of_pod.preferred,
        terms.slice_members or of_pod.slice_members,
        terms.slice_required or of_pod.slice_required,
        of_pod.preemptible if terms.preemptible is None else terms.preemptible,
        (*terms.unknown, *of_pod.unknown),
    )


def gang_of(key: Key, terms: Terms | None, pods: Sequence[Pod]) -> Gang:
    """The gang of pods of one key, at least one."""
    ordered = sorted(pods, key=order_of)
    asked = [asked_by(pod) for pod in ordered]
    whole = with_pod(terms, ordered[0])
    unknown = dict.fromkeys((*whole.unknown, *(word for each in asked for word in each.unknown)))
    return Gang(key, whole, _roles(ordered, asked), tuple(unknown))


def job_of(
    gang: Gang, tier: Callable[[str], str | None], owner: str = ""
) -> tuple[Job, tuple[str, ...]]:
    """A gang as a job, and what it asks for that cannot be had: words for tiers that the site does not have.

    tier gives the tier that a word means, None where it means none.
    """
    terms = gang.terms
    words = [word for word in (terms.required, terms.preferred, terms.slice_required) if word]
    tier_of = {word: tier(word) for word in words}
    slice_tier = tier_of.get(terms.slice_required or "")
    wish = TopologyWish(
        required=tier_of.get(terms.required or ""),
        preferred=tier_of.get(terms.preferred or ""),
        slices=(Slices(terms.slice_members, slice_tier),)
        if terms.slice_members and slice_tier
        else (),
    )
    lost = tuple(f"topology {word!r}" for word, found in tier_of.items() if found is None)
    namespace, name, _ = gang.key
    job = Job(
        name=f"{namespace}/{name}",
        roles=tuple(role for role, _ in gang.roles),
        queue=terms.queue or DEFAULT_QUEUE,
        priority="batch" if terms.priority is None else terms.priority,
        topology=wish,
        restarts=Restarts(FOR_EVER),
        user=owner,
        preemptible=terms.preemptible is not False,
        time_limit_s=_time_limit_s(gang.pods),
        checkpoint=checkpoint_of(gang.pods),
    )
    return job, lost


def order_of(pod: Pod) -> tuple[float, list[int | str]]:
    """Where a pod stands among those of its gang: by its index, then by its name, numbers in it as numbers."""
    told = {**pod.metadata.labels, **pod.metadata.annotations}
    index = next((told[key] for key in INDEX_KEYS if told.get(key, "").isdecimal()), None)
    words = [int(part) if part.isdecimal() else part for part in _DIGITS.split(pod.metadata.name)]
    return (float("inf") if index is None else int(index)), words


def _roles(pods: Sequence[Pod], asked: Sequence[Asked]) -> tuple[tuple[Role, tuple[Pod, ...]], ...]:
    of_shape: dict[Shape, list[Pod]] = {}
    for pod, each in zip(pods, asked, strict=True):
        of_shape.setdefault(each.shape, []).append(pod)
    names = ["worker"] if len(of_shape) == 1 else [f"role{n}" for n in range(len(of_shape))]
    return tuple(
        (Role(name, len(members), shape), tuple(members))
        for name, (shape, members) in zip(names, of_shape.items(), strict=True)
    )


def _time_limit_s(pods: Sequence[Pod]) -> float | None:
    """The kubelet ends pods at their deadline; a gang is over with the first of them."""
    limits = [pod.spec.active_deadline_seconds for pod in pods]
    told = [float(limit) for limit in limits if limit]
    return min(told) if len(told) == len(limits) else None
